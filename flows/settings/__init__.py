"""One settings object per flow, one field per stage. Values live in prefect.yaml: knobs and a platform (parts.py)."""
