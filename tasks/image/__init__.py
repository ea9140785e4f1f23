"""What a run's processes run in, by digest."""
