"""What a run on the cluster would create, take and cost."""
