"""Ray jobs: submitted once by name, followed to their end."""
