"""The HTTP/1.1 server under /v1."""
