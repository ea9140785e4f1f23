"""MLflow: the names that this project's runs and its experiment carry there."""

from __future__ import annotations

RUN_NAME_TAG, ROLE_TAG, PARENT_TAG = "maze.run_name", "maze.role", "mlflow.parentRunId"
FLOW_RUNS_TAG = "maze.flow_runs"
"""Prefect's flow runs that worked on it, in order."""
LEFT_OUT_TAG = "maze.metrics_left_out"
DECISION_TAG = "maze.decision"
"""What the gate decided, on the run in MLflow."""
EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.note.content": (
        "Agents that walk 2D mazes from pictures, retrained. *Views > Retrainings* above has the columns and charts "
        "that matter. Tick two runs and press *Compare* for what differs in them. One run a retraining, with the "
        "curves that led to its result; its attempts at training, with every number of SkyRL's, are its children. What "
        "each name means: docs/mlflow.md."
    ),
}
"""What MLflow's page says of the experiment, where this project made it; the page shows one line of it at first."""
TRAINING_PAGES = "?workflowType=machine_learning"
"""End of an address in MLflow's pages: without it a newcomer's browser shows them as those of agents and prompts, a run
among ``Evaluation runs`` (mlflow 3.17, js/build: the switch GenAI / Model training)."""
