"""One module per resource of /v1."""
