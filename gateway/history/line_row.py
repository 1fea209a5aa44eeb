"""A ledger line as a row of the database, and a row as the line it was."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.billing.usage import Usage
from gateway.ledger.line import LedgerLine

#: The columns of `superseded_lines`, too.
LINE_COLUMNS = (
    "account", "seq", "stream_id", "at", "request_id", "kind", "amount", "balance", "uncollected", "late", "meta",
    "hash",
)  # fmt: skip


class LineFacts(Struct, frozen=True):
    """The part of a line's meta that reports use; everything is empty for a line that is not of a call."""

    key: str = ""
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    estimated: bool = False
    attempts: int = 0
    outcome: str = ""
    served_model: str = ""
    endpoint: str = ""
    duration_ms: int = 0
    first_token_ms: int = 0
    user: str = ""
    tags: dict[str, str] = {}
    upstream_cost: int | None = None
    session: str = ""


_decoder = msgspec.json.Decoder(LineFacts)
_NOTHING = LineFacts()


def facts_of(meta_text: str) -> LineFacts:
    """The facts in a line's meta, with U+FFFD for NUL, which PostgreSQL does not take; none in another form."""
    try:
        facts = _decoder.decode(meta_text) if meta_text else _NOTHING
    except (ValueError, RecursionError):
        return _NOTHING
    return _without_zero(facts) if "\\u0000" in meta_text else facts


def _without_zero(facts: LineFacts) -> LineFacts:
    texts = {name: _shown(value) for name, value in structs.asdict(facts).items() if isinstance(value, str)}
    tags = {_shown(name): _shown(value) for name, value in facts.tags.items()}
    return structs.replace(facts, **texts, tags=tags)


def _shown(text: str) -> str:
    return text.replace("\0", "\ufffd")


def row_of(line: LedgerLine, hash_: bytes, facts: LineFacts) -> tuple[Any, ...]:
    """The row of `ledger_lines`, in the order of its columns; `hash_` is the chain up to this line."""
    usage = facts.usage
    return (
        line.account,
        line.n,
        line.id,
        line.milliseconds * 1000,
        line.request_id,
        line.kind,
        line.amount,
        line.balance,
        line.uncollected,
        line.late,
        line.meta_text,
        hash_,
        facts.key,
        facts.model,
        facts.served_model,
        facts.provider,
        facts.endpoint,
        facts.outcome,
        facts.estimated,
        facts.attempts,
        usage.tokens_in if usage is not None else 0,
        usage.tokens_out if usage is not None else 0,
        facts.duration_ms,
        facts.first_token_ms,
        facts.user,
        msgspec.json.encode(facts.tags).decode() if facts.tags else "",
        facts.upstream_cost,
        facts.session,
    )


def line_of(row: Any) -> LedgerLine:
    """The line in a row that has `LINE_COLUMNS`, with its hash as an archive file has it."""
    return LedgerLine(
        row.account,
        row.stream_id,
        row.seq,
        row.request_id,
        row.kind,
        row.amount,
        row.balance,
        row.meta,
        hash=row.hash.hex(),
        uncollected=row.uncollected,
        late=row.late,
    )
