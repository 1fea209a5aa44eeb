"""The HTTP client that calls providers."""
