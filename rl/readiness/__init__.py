"""What only the cluster's nodes can tell before training."""
