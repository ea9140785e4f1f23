"""From the best step to the users: published, served, evaluated, proven, judged, promoted."""
