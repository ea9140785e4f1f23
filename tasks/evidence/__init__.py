"""What a run leaves for its reader: MLflow, the Prefect page, the report."""
