"""Alembic runs this module; `gateway.database.migrate` passes the connection. A migration is one transaction."""

from __future__ import annotations

from alembic import context

from gateway.database.people_tables import metadata  # with every table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite can do it, too: see `gateway.database.engine`
)
with context.begin_transaction():
    context.run_migrations()
