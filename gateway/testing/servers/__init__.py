"""Checks any server by the standards' situations: `python -m gateway.testing conformance` (docs/dialects.md).

`situations` says what is sent and what must come back, `client` sends it, `answers` and `streams` judge it, `run` goes
through all, and `report` writes the table.
"""
