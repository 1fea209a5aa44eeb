"""Plugins: hooks, loading, provider classes and their instances."""
