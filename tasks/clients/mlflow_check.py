"""MLflow's registry, tried with what promotion will ask of it."""

from __future__ import annotations

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tasks.errors import TrackingUnavailable


def try_registry(tracking_uri: str, name: str, source: str) -> str:
    """Register a model, a version of it and an alias, find it by the alias, and take all of it away again.

    Returns the model's name; raises TrackingUnavailable with the step that failed and MLflow's words.
    """
    client, model = MlflowClient(tracking_uri), f"readiness-probe-{name}"
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
        raise TrackingUnavailable(f"{tracking_uri}: {step} ({model}) failed: {error}") from error
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
