"""Asynchronous hooks of plugins: their instances, and the bounds within which one runs."""
