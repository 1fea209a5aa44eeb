"""The process that runs batches: it is built like a worker, listens on no port, and has a lower priority."""
