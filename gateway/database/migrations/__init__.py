"""Alembic's folder: `versions` has one module for each change of the tables."""
