"""The laptop's stand-ins for the cluster's services: Prefect, MLflow, an S3 endpoint and a Ray head, by pid."""
