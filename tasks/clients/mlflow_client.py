"""MLflow's client, made here and nowhere else, so that its patience is the project's."""

from __future__ import annotations

from mlflow import MlflowClient

from tasks.clients.retry import limit_mlflow_requests


def mlflow_client(tracking_uri: str) -> MlflowClient:
    """It asks again as tasks/clients/retry.py says; a server that is away is known as such within seconds."""
    limit_mlflow_requests()
    return MlflowClient(tracking_uri)
