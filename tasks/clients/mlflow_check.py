"""MLflow, tried with what a run and its promotion will ask of it.

Its ``/health`` says nothing of that: it is exempt from the check of host names (mlflow/server/security_utils.py,
HEALTH_ENDPOINTS), which refuses every other request to a server that was not told its own name.
"""

from __future__ import annotations

from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LifecycleStage
from mlflow.exceptions import MlflowException

from tasks.clients.mlflow_client import mlflow_client
from tasks.errors import TrackingUnavailable

PROBE, PROBE_TAG = "readiness-probe", "maze.probe"
HOST_REFUSED = "Invalid Host header"
"""MLflow's own words (mlflow/server/security_utils.py, INVALID_HOST_MSG)."""


def try_tracking(tracking_uri: str, experiment: str, name: str) -> str:
    """Begin a run in the experiment, log a number, a tag and a file, read them back, and delete the run.

    Returns the experiment's name; raises TrackingUnavailable with the step that failed, MLflow's words and, where it
    does not know the name that it was asked under, what makes it.
    """
    client, run_id = mlflow_client(tracking_uri), ""
    step = "finding the experiment"
    try:
        found = client.get_experiment_by_name(experiment)
        step = "creating the experiment"
        experiment_id = found.experiment_id if found else client.create_experiment(experiment)
        step = "taking away what an earlier look left"
        for left in client.search_runs([experiment_id], f"tags.`{PROBE_TAG}` = '{name}'"):
            client.delete_run(left.info.run_id)
        step = "beginning a run"
        run_id = client.create_run(experiment_id, run_name=f"{PROBE}-{name}", tags={PROBE_TAG: name}).info.run_id
        step = "logging a number"
        client.log_metric(run_id, PROBE, 1.0, step=1)
        step = "logging a file"
        client.log_text(run_id, name, f"{PROBE}.txt")
        step = "reading what was logged"
        _read_back(client, run_id, name)
        step = "deleting the run"
        client.delete_run(run_id)
    except (MlflowException, OSError) as error:
        _try_to_delete(client, run_id)
        raise TrackingUnavailable(f"{tracking_uri}: {step} ({experiment}) failed: {_in_words(error)}") from error
    return experiment


def _read_back(client: MlflowClient, run_id: str, name: str) -> None:
    seen = client.get_run(run_id).data
    text = Path(client.download_artifacts(run_id, f"{PROBE}.txt")).read_text()
    if (seen.metrics.get(PROBE), seen.tags.get(PROBE_TAG), text) != (1.0, name, name):
        raise MlflowException(f"it gave back {dict(seen.metrics)} and {text!r}, not what was logged")


def _in_words(error: Exception) -> str:
    if HOST_REFUSED not in str(error):
        return str(error)
    return (
        f"{error}; the server does not take requests under this name: start it with --allowed-hosts <name>:<port> "
        "(MLFLOW_SERVER_ALLOWED_HOSTS), as docker/mlflow.yaml does"
    )


def _try_to_delete(client: MlflowClient, run_id: str) -> None:
    """What failed before is told; that this fails as well is no news."""
    try:
        if run_id and client.get_run(run_id).info.lifecycle_stage == LifecycleStage.ACTIVE:
            client.delete_run(run_id)
    except MlflowException:
        return


def try_registry(tracking_uri: str, name: str, source: str) -> str:
    """Register a model, a version of it and an alias, find it by the alias, and take all of it away again.

    Returns the model's name; raises TrackingUnavailable with the step that failed and MLflow's words.
    """
    client, model = mlflow_client(tracking_uri), f"readiness-probe-{name}"
    step = "taking away what an earlier look left"
    try:
        _remove(client, model)
        step = "creating a registered model"
        client.create_registered_model(model)
        step = "creating a version"
        version = client.create_model_version(model, source, run_id="").version
        step = "setting an alias"
        client.set_registered_model_alias(model, "champion", version)
        step = "finding a version by its alias"
        client.get_model_version_by_alias(model, "champion")
        step = "deleting a registered model"
        client.delete_registered_model(model)
    except MlflowException as error:
        _try_to_remove(client, model)
        raise TrackingUnavailable(f"{tracking_uri}: {step} ({model}) failed: {_in_words(error)}") from error
    return model


def _remove(client: MlflowClient, model: str) -> None:
    try:
        client.delete_registered_model(model)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _try_to_remove(client: MlflowClient, model: str) -> None:
    """What failed before is told; that this fails as well is no news."""
    try:
        _remove(client, model)
    except MlflowException:
        return
