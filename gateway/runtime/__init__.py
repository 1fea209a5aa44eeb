"""Processes: the composition root, workers, the supervisor, the side port."""
