"""Does everything answer that the run will need? Asked before a job is submitted."""
