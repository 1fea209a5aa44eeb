"""The SQL database: history now, people later. SQLite in `data_dir` by default, PostgreSQL by URL.

::

    database = Database.open(address_of(settings))   # runs the migrations under a lock
    with database.writing() as connection: ...
    database.close()

All calls block: a process with an event loop makes them in a thread. Only processes and commands that need SQL import
this package, because SQLAlchemy takes 0.2 s and 20 MB. Amounts are integers of 1e-9 currency units. Times are integers:
microseconds since 1970 in UTC. An unreachable or full database is `DatabaseUnavailable`, one that this program cannot
use is `DatabaseRefused`.
"""
