"""What people type: a deployment here and now, a maze watched."""
