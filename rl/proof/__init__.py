"""What an adapter is asked, and how the training side answers."""
