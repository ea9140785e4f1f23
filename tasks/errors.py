"""The errors that end a run: each is named after the boundary that it crossed.

Every one says what is, what was wanted and what to do.
"""

from __future__ import annotations


class StageError(RuntimeError):
    """Root of the errors that end a pipeline run."""

    todo: str = ""
    """What to do, where every error of the kind asks for the same; else the message ends with it. Without a semicolon:
    behind the last one of a line is what to do."""


class ClusterNotReady(StageError):
    """The cluster did not offer what the run needs in time."""


class ClusterUnreachable(StageError):
    """The Ray Jobs API did not answer."""


class SubmissionRefused(StageError):
    """The cluster does not take jobs from this identity."""


class KubernetesUnreachable(StageError):
    """The Kubernetes API did not answer, or there is no way to it."""


class KubernetesRefused(StageError):
    """The Kubernetes API answered with a refusal."""


class AwsRefused(StageError):
    """An AWS service said no, or could not be asked."""


class AttemptsUnknown(StageError):
    """Prefect did not say which flow runs work under a run's name."""


class LogBrokeOff(StageError):
    """A job's log ended before the job did, as far as anybody here knows."""


class ImageBuildFailed(StageError):
    """An image could not be built, or not as it was wanted."""


class BuilderNotReady(ImageBuildFailed):
    """What builds images is not there, or a secret that the build needs."""


class RegistryUnreachable(StageError):
    """The image registry did not answer, or not as a registry does."""


class RegistryRefused(StageError):
    """The image registry does not let this identity in."""


class TrainingJobFailed(StageError):
    """The Ray job ended in another state than SUCCEEDED."""

    todo = "read the end of the job's log, then run again under the same run_name: it goes on from its last checkpoint"


class UnknownJobState(StageError):
    """Ray describes a job in a word that this version does not know."""


class EvaluationsDiffer(StageError):
    """The evaluations of one run were not played by the same rules."""


class OtherVersion(StageError):
    """What an earlier attempt kept is in another version's words."""


class TrainingStalled(StageError):
    """The Ray job made no progress and was stopped."""


class DoesNotStop(TrainingStalled):
    """The Ray job made no progress, and goes on although it was told to stop."""


class TrackingUnavailable(StageError):
    """MLflow did not answer."""


class TrackingRefused(StageError):
    """MLflow answered that it will not have what it was told."""


class OtherSettings(StageError):
    """A run of this name was begun with other settings."""


class NothingToExport(StageError):
    """No step has both an evaluation and an export."""


class RolloutFailed(StageError):
    """The Serve application did not come up."""


class AddressTaken(RolloutFailed):
    """Another process listens where the endpoint would."""

    todo = (
        "end that process, or give the endpoint another address (here `maze-retrain down`, then `maze-retrain up`, "
        "elsewhere platform.serve.server.listen and platform.serve.url)"
    )


class ListensElsewhere(RolloutFailed):
    """Serve runs at another address than the settings say; it keeps the one that it was started with."""

    todo = (
        "name that address in platform.serve.server.listen and platform.serve.url, or stop Serve so that it starts "
        "anew (here `maze-retrain down`, then `maze-retrain up`)"
    )


class EndpointFailed(StageError):
    """The served endpoint did not answer, or answered with an error."""


class ModelNotServed(EndpointFailed):
    """The endpoint does not know a model of this name."""


class ContextExceeded(EndpointFailed):
    """A conversation is longer than the model takes."""


class WrongModelAnswered(StageError):
    """A reply came from another model than the one that was asked."""


class NotProven(StageError):
    """The adapter has no certificate that holds."""


class NoSuchAdapter(StageError):
    """The registry has no adapter of this name."""


class UnknownRun(StageError):
    """MLflow has no run of this name."""
