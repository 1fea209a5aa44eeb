"""Ledger lines of chosen times, written to a database as the importer writes them; no store is needed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.billing.usage import Usage
from gateway.database.engine import Database
from gateway.history.appending import append
from gateway.history.import_state import ImportState, read_states
from gateway.history.new_lines import NewLines
from gateway.ledger import LedgerLine


def moment(text: str) -> datetime:
    """A time in UTC, such as 2026-10-01T05:30."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Account:
    """Writes lines of one account, one after the other."""

    def __init__(self, database: Database, name: str = "acme") -> None:
        self.database = database
        self.name = name
        self._waiting: list[LedgerLine] = []
        with database.reading() as connection:
            state = read_states(connection, [name]).get(name)
        self._state = state
        self.seq, self.balance = (state.last_seq, state.balance) if state is not None else (0, 0)

    def line(self, at: str, kind: str, amount: int, *, request_id: str = "", uncollected: int = 0, **meta: Any) -> str:
        """Add a line; returns its request id. `flush` writes what was added."""
        self.seq, self.balance = self.seq + 1, self.balance + amount
        request_id = request_id or f"req_{self.name}_{self.seq}"
        text = msgspec.json.encode(meta).decode() if meta else ""
        id_ = f"{int(moment(at).timestamp() * 1000)}-{self.seq}"
        self._waiting.append(
            LedgerLine(self.name, id_, self.seq, request_id, kind, amount, self.balance, text, uncollected=uncollected)
        )
        return request_id

    def call(self, at: str, cost: int, *, usage: Usage | None = None, kind: str = "use", **meta: Any) -> str:
        """Add the charge of a call."""
        values: dict[str, Any] = {"key": "key_1", "model": "m", "provider": "p", "endpoint": "chat", "outcome": "ok"}
        usage = usage or Usage(in_text=10, out_text=5)
        rest: dict[str, Any] = {name: meta.pop(name) for name in ("request_id", "uncollected") if name in meta}
        return self.line(at, kind, -cost, **rest, **values | {"usage": usage, "duration_ms": 300} | meta)

    def flush(self) -> None:
        """Write the lines with their sums."""
        if not self._waiting:
            return
        append(self.database, [NewLines(self._state, self._state or ImportState(self.name), self._waiting, False)])
        self._waiting = []
        with self.database.reading() as connection:
            self._state = read_states(connection, [self.name])[self.name]
