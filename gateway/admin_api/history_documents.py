"""Schemas of answers about the past: usage, statements, calls, refused settlements and the state of the history."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.admin_api.documents import Amount, AttemptAnswer, Joined, Line, Time


class Times(Struct):
    """Milliseconds."""

    mean: int
    p50: int
    p95: int
    p99: int


class Sums(Struct, kw_only=True):
    """Sums of usage. The fields of the margin are there if it was asked for."""

    calls: int
    errors: Annotated[
        int | None, Meta(description="Calls that ended in an error, not those that the caller left; null with tags.")
    ]
    estimated: int
    tokens_in: int
    tokens_out: int
    usage: dict[str, int]
    amount: Annotated[Amount, Meta(description="What was charged.")]
    uncollected: Amount
    duration_ms: Times | None
    first_token_ms: Times | None
    upstream_cost: Amount | UnsetType = UNSET
    margin: Amount | UnsetType = UNSET
    upstream_cost_known: Annotated[int | UnsetType, Meta(description="Calls whose cost is known.")] = UNSET


class UsageRow(Sums, kw_only=True):
    """The sums of a group, with the values that it is grouped by."""

    hour: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    month: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    email: str | UnsetType | None = UNSET
    key: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    endpoint: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET


class UsageReport(Struct, rename={"from_": "from"}):
    """Sums of a range of whole hours, with tags of whole days."""

    from_: Time
    to: Time
    group_by: list[str]
    rows: list[UsageRow]
    total: Sums
    others: Annotated[Sums | UnsetType, Meta(description="With a limit: the groups that are left out, together.")] = (
        UNSET
    )


class RefusalSum(Struct):
    """Refused requests of a key for a model with an error code; a text is empty where it is not known."""

    account: str
    key: str
    model: str
    code: str
    requests: int


class StatementSummary(Struct):
    """A final statement in a list."""

    number: int
    account: str
    month: str
    closing_balance: Amount
    fixed: Time


class ChargedKey(Struct):
    """What the calls of one model and key were charged."""

    model: str
    key: str
    key_name: str
    calls: int
    tokens_in: int
    tokens_out: int
    amount: Amount
    uncollected: Amount


class Movement(Struct):
    """A credit, an adjustment or a refund."""

    at: Time
    section: str
    line: int
    id: str
    amount: Amount
    request_id: str
    note: str


class Statement(Struct):
    """An account's month: the opening balance, all movements and charges, and the closing balance."""

    account: str
    month: str
    since: Time
    until: Time
    opening_balance: Amount
    closing_balance: Amount
    correction: Amount
    credits: Amount
    adjustments: Amount
    refunds: Amount
    charges: Amount
    uncollected: Amount
    first_line: int
    last_line: int
    last_line_hash: str
    charged: list[ChargedKey]
    movements: list[Movement]
    not_listed: Annotated[int, Meta(description="Further movements, which are in the sums only.")]
    missing_lines: Annotated[int, Meta(description="Lines that are not imported yet.")]
    number: Annotated[int | None, Meta(description="Null while the statement is preliminary.")]
    fixed: Time | None
    hash: str
    ledger: str
    status: Annotated[str, Meta(extra_json_schema={"enum": ["final", "preliminary"]})]


class SettledCall(Struct):
    """A call, what it was charged and why. `cost` is null if its price table or its usage is not known."""

    request_id: str
    account: str
    at: Time
    key: str | None
    user: str | None
    model: str | None
    provider: str | None
    upstream: str | None
    endpoint: str | None
    outcome: str | None
    service_tier: str | None
    price: str | None
    tags: dict[str, str] | None
    session: str | None
    served_model: str | None
    estimated: bool
    clamped: bool
    reclaimed: bool
    late: bool
    attempts: int
    hooks: Annotated[dict[str, str], Meta(description="What came of each hook of its model.")]
    joined: Annotated[
        Joined | None, Meta(description="Where the parts of two targets meet, in an answer that was cut; or null.")
    ]
    answers: Annotated[
        list[AttemptAnswer],
        Meta(description="Of attempts, in the order in which they ended; empty if the outcome says as much."),
    ]
    duration_ms: int
    first_token_ms: int | None
    address: Annotated[str | None, Meta(description="Of the caller, whole or shortened; null if it is not known.")]
    hold: Amount
    amount: Annotated[Amount, Meta(description="What was charged.")]
    uncollected: Amount
    refunded: Amount
    cost: dict[str, Any] | None
    lines: list[Line]


class RefusedSettlement(Struct):
    """A settlement that the store refused: `open`, `booked`, `no account`, or why it is refused again."""

    at: Time
    request_id: str
    account: str
    key: str
    amount: Amount
    state: str


class SupersededLine(Struct):
    """A ledger line that the store has lost; `request_id` is the call's or the operation's."""

    id: int
    account: str
    line: Annotated[int, Meta(description="The number that it had in the ledger.")]
    kind: str
    request_id: str
    amount: Amount
    at: Time


class BookedLine(SupersededLine):
    """What became of a superseded line."""

    state: Annotated[str, Meta(description="`booked`, or why the line is still open.")]
    booked: Annotated[Amount, Meta(description="What was charged or credited now; of a charge it may be less.")]


class SupersededBooking(Struct):
    """What became of superseded lines: the counts, and the first 1,000, those that are still open first."""

    booked: int
    left: Annotated[int, Meta(description="Lines that are still open.")]
    lines: list[BookedLine]


class Acknowledged(Struct):
    """How many superseded lines were closed."""

    acknowledged: int


class Behind(Struct):
    """An account of which the database lacks lines."""

    account: str
    lines: int


class Blocked(Struct):
    """An account whose lines cannot be imported."""

    account: str
    reason: str


class HistoryState(Struct):
    """How far the database is behind the store, for the accounts of this page."""

    attached: Annotated[bool, Meta(description="Whether the store has its history in this database.")]
    trimming_paused: bool
    accounts: int
    missing_lines: int
    oldest_missing: Time | None
    lag_seconds: float
    unreadable: Annotated[int, Meta(description="Accounts whose server is away.")]
    behind: list[Behind]
    blocked: list[Blocked]
    next_cursor: Annotated[str | None, Meta(description="Null if no account follows.")]
