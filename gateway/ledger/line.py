"""One line of an account's ledger: in its stream, in an archive file, and as `gateway usage` shows it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from gateway.amounts import format_amount
from gateway.errors.attempt_answer import OPERATORS_OWN
from gateway.ledger.compact_meta import expanded
from gateway.store.links import Links, slot

UNREADABLE = "unreadable"  # the kind of a line whose entry cannot be read
PAGE = 500  # lines per read: well under a millisecond of Redis's time
_encoder = msgspec.json.Encoder()
_USUAL = [
    b"n",
    b"rid",
    b"kind",
    b"amount",
    b"bal",
    b"meta",
]  # the fields of a line that is neither late nor uncollected


#: Makes a line of a stream entry.
ReadLine = Callable[[str, bytes, list[bytes]], "LedgerLine"]


class LedgerLine(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """A change of a balance: open, topup, use, adj, reclaim or refund. Its JSON is a line of an archive file."""

    account: str
    id: str  # of the stream entry: milliseconds of Redis time, and a counter
    n: int
    request_id: str = msgspec.field(name="rid")
    kind: str
    amount: int  # nano-units, negative for a charge
    balance: int
    meta_text: str = msgspec.field(name="meta")  # as it was settled, to the byte; the stream may have it compact
    hash: str = ""  # the head of the hash chain at this line; only archive files have it
    uncollected: int = 0  # nano-units that the call cost beyond what could be charged; an `adj` line may lower it
    late: bool = False  # the hold was lost before the call was settled

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The decoded meta, with the keys of `LineMeta`; empty for a line without."""
        decoded: dict[str, Any] = msgspec.json.decode(self.meta_text) if self.meta_text else {}
        return decoded

    @cached_property
    def shown(self) -> dict[str, Any]:
        """`json_form`, made once."""
        return self.json_form()

    @property
    def milliseconds(self) -> int:
        """Redis time of the booking."""
        return milliseconds(self.id)

    @property
    def at(self) -> datetime:
        """Redis time of the booking."""
        return datetime.fromtimestamp(self.milliseconds / 1000, UTC)

    @property
    def at_text(self) -> str:
        """Redis time of the booking, as RFC 3339 in UTC."""
        return self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def chained(self, before: str) -> str:
        """The hash of this line in a chain whose last hash is `before`."""
        return hashlib.sha256(self._chain_input(before)).hexdigest()

    def chained_bytes(self, before: bytes) -> bytes:
        """`chained`, of bytes."""
        return hashlib.sha256(self._chain_input(before.hex())).digest()

    def _chain_input(self, before: str) -> bytes:
        """All fields but the hash. By name: `structs.astuple` costs twice as much, and this is done for each line."""
        fields = (
            before,
            self.account,
            self.id,
            self.n,
            self.request_id,
            self.kind,
            self.amount,
            self.balance,
            self.meta_text,
        )
        if self.uncollected or self.late:  # a line without them has the hash that older versions give it
            return _encoder.encode((*fields, self.uncollected, self.late))
        return _encoder.encode(fields)

    @property
    def served_model(self) -> str | None:
        """The model that served: the requested one or a fallback. None for a line that is not of a call."""
        return self.meta.get("served_model") or self.meta.get("model")

    def json_form(self, *, with_costs: bool = True) -> dict[str, Any]:
        """The document that the command line prints; `with_costs`: also what the call cost the operator."""
        meta = self.meta
        usage = meta.get("usage", {})
        upstream_cost = meta.get("upstream_cost") if with_costs else None
        return {
            "request_id": self.request_id,
            "kind": self.kind,
            "at": self.at_text,
            "model": meta.get("model"),
            "served_model": self.served_model,
            "provider": meta.get("provider"),
            "key": meta.get("key"),
            "amount": format_amount(self.amount),
            "balance": format_amount(self.balance),
            "usage": _with_cost(usage) if with_costs else without_cost(usage),
            "estimated": meta.get("estimated", False),
            "attempts": meta.get("attempts", 0),
            **({"hold": format_amount(meta["hold"])} if "hold" in meta else {}),
            **({"upstream_cost": format_amount(upstream_cost)} if upstream_cost is not None else {}),
            **({"uncollected": format_amount(self.uncollected)} if self.uncollected else {}),
            **({"late": True} if self.late else {}),
            **({"answers": answers_in(meta, for_operator=with_costs)} if "answers" in meta else {}),
            **{name: meta[name] for name in EXTRA if name in meta},
        }


def without_cost(usage: dict[str, Any]) -> dict[str, Any]:
    """The usage without `provider_cost`, which is what the operator pays."""
    return {name: count for name, count in usage.items() if name != "provider_cost"}


def answers_in(meta: dict[str, Any], *, for_operator: bool) -> list[dict[str, Any]]:
    """What each attempt of the call answered, in the order in which they ended; empty if the outcome says as much.

    Only the operator gets the HTTP status of a failure that is about the operator's credential or credit.
    """
    return [
        {
            "provider": answer.get("provider", ""),
            "model": answer.get("model", ""),
            "code": answer.get("code", ""),
            "status": answer.get("status") if for_operator or answer.get("code") not in OPERATORS_OWN else None,
            "ms": answer.get("ms", 0),
            **{name: answer[name] for name in ATTEMPT_USAGE if name in answer},
        }
        for answer in meta.get("answers") or ()
    ]


def _with_cost(usage: dict[str, Any]) -> dict[str, Any]:
    """The usage with `provider_cost`, the only amount of money in it, in the printed form of amounts."""
    cost = usage.get("provider_cost")
    return usage if cost is None else {**usage, "provider_cost": format_amount(cost)}


#: In the entry of an attempt whose upstream may charge what is not in the usage of the line.
ATTEMPT_USAGE = ("tokens_in", "tokens_out", "estimated")

EXTRA = (
    "joined",
    "endpoint",
    "upstream",
    "outcome",
    "price",
    "price_factor",
    "service_tier",
    "duration_ms",
    "first_token_ms",
    "clamped",
    "reclaimed",
    "refunds",
    "note",
    "user",
    "tags",
    "hooks",
    "session",
)


def milliseconds(id_: str) -> int:
    """The moment in a stream entry's id."""
    return int(id_.partition("-")[0])


def read_line(account: str, id_: bytes, fields: list[bytes]) -> LedgerLine:
    """A stream entry as a line; the order of its fields is fixed by line.lua."""
    if fields[::2] == _USUAL:  # nearly all: 1 µs less than by name
        n, request_id, kind, amount, balance, meta = fields[1::2]
        return LedgerLine(
            account,
            id_.decode(),
            int(n),
            request_id.decode(),
            kind.decode(),
            int(amount),
            int(balance),
            expanded(meta.decode()),
        )
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    return LedgerLine(
        account,
        id_.decode(),
        int(values[b"n"]),
        values[b"rid"].decode(),
        values[b"kind"].decode(),
        int(values[b"amount"]),
        int(values[b"bal"]),
        expanded(values[b"meta"].decode()),
        uncollected=int(values.get(b"uncollected", 0)),
        late=b"late" in values,
    )


async def read_lines(
    links: Links, account: str, *, since: str = "-", until: str = "+", read: ReadLine = read_line
) -> AsyncGenerator[LedgerLine, None]:
    """Lines in order, page by page; `since` and `until` are stream ids or milliseconds."""
    key = slot(account)
    while True:
        page = await links.link(key).call("XRANGE", f"{key}:lg", since, until, "COUNT", PAGE)
        for id_, fields in page:
            yield read(account, id_, fields)
        if len(page) < PAGE:
            return
        since = "(" + page[-1][0].decode()


def read_shown_line(account: str, id_: bytes, fields: list[bytes]) -> LedgerLine:
    """A stream entry as a line to show: one that cannot be read has the kind `UNREADABLE`, its id, and nothing else.

    So it hides no other. Whoever adds lines up uses `read_line`.
    """
    try:
        line = read_line(account, id_, fields)
        line.shown  # noqa: B018 - it is read by whoever shows the line
    except (ValueError, LookupError, TypeError, AttributeError):
        return unreadable_line(account, id_)
    return line


def unreadable_line(account: str, id_: bytes) -> LedgerLine:
    """What stands for a line that cannot be read."""
    return LedgerLine(account, id_.decode(), 0, "", UNREADABLE, 0, 0, "")


async def read_newest(links: Links, account: str, *, before: str = "", since: int = 0, most: int) -> list[LedgerLine]:
    """At most `most` lines to show, the newest first, booked at `since` or later, in Unix milliseconds.

    `before` is the stream id of the line after them.
    """
    key = slot(account)
    newest = f"({before}" if before else "+"
    page = await links.link(key).call("XREVRANGE", f"{key}:lg", newest, str(since), "COUNT", most)
    return [read_shown_line(account, id_, fields) for id_, fields in page]
