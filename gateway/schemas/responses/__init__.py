"""Requests in the dialect of `POST /v1/responses`."""
