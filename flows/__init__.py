"""The flows: what Prefect runs, each a page."""
