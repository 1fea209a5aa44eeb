"""The fixtures of the services."""

from tests.admin.conftest import database, database_address, hashes, services, sql

__all__ = ["database", "database_address", "hashes", "services", "sql"]
