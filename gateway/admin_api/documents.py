"""Schemas of the answers: the documents that the services' `json_form` methods make. Amounts are decimal text.

An answer is not converted to its schema, because it was made by the gateway itself; a test holds the answers of all
routes to the schemas.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

Amount = Annotated[str, Meta(pattern=r"^-?[0-9]+(\.[0-9]{1,9})?$(?!\n)", examples=["12.5"])]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, examples=["2026-11-23T12:00:00Z"])]


class Account(Struct):
    """An account: who pays."""

    name: str
    group: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "disabled", "unreadable"]})]
    balance: Amount
    held: Annotated[Amount, Meta(description="What running calls hold of the balance.")]
    allowed: list[str]
    denied: list[str]
    created: Time
    floor: Annotated[Amount, Meta(description="The lowest balance that calls may leave; negative: a credit line.")]
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    monthly: Amount | None
    month_spent: Amount | None
    max_session_cost: Annotated[Amount | None, Meta(description="What the calls of a session may cost in a day.")]
    prices: dict[str, dict[str, str]]  # its own prices, by model


class Credit(Struct):
    """A credit. The answer to a repeat is the same."""

    account: str
    operation: Annotated[str, Meta(description="The Idempotency-Key.")]
    amount: Amount


class Refund(Struct):
    """A refund. The answer to a repeat is the same."""

    account: str
    operation: Annotated[str, Meta(description="The Idempotency-Key.")]
    request_id: str
    amount: Amount


class Key(Struct):
    """An API key without its text."""

    id: str
    account: str
    name: str
    last4: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "disabled", "revoked", "expired", "unreadable"]})]
    created: Time
    expires: Time | None
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    models: list[str] | None
    budget: Amount | None
    spent: Amount
    every: str | None
    period_spent: Amount | None
    max_cost: Amount | None
    max_session_cost: Amount | None
    endpoints: list[str] | None
    addresses: list[str] | None
    last_used: Time | None
    response_headers: list[str]
    user: Annotated[str | None, Meta(description="The id of the member who has it; null for a service key.")]


class NewKey(Struct):
    """A new API key; `key`, its text, is shown only here."""

    key: str
    id: str
    account: str
    name: str


class KeyAddress(Struct):
    """An address that a key was used from, whole or shortened to its network."""

    key: Annotated[str, Meta(description="The id of the key.")]
    address: Annotated[str, Meta(description="Empty if it was not known.")]
    first: Time
    last: Time


class KeyAddresses(Struct):
    """The addresses of a key, as far as they are kept."""

    data: list[KeyAddress]


class RotatedKey(Struct):
    """A new API key in place of an old one, which expires."""

    key: str
    id: str
    account: str
    name: str
    replaces: str
    old_expires: Time | None


class AuditEvent(Struct):
    """Who did what to which object."""

    id: str
    at: Time
    actor: str
    action: str
    object: str
    account: str
    before: dict[str, Any]
    after: dict[str, Any]
    address: str


class Joined(Struct):
    """The seam of an answer that two targets gave."""

    form: Annotated[str, Meta(description="How the text of the last target fits: prefill, overlap or restart.")]
    offset: Annotated[int, Meta(description="Characters that the first target gave.")]


class AttemptAnswer(Struct):
    """What an attempt of a call answered."""

    provider: str
    model: str
    code: Annotated[
        str,
        Meta(
            description="`ok`, an error code, `cancelled` if another attempt had answered, or the outcome of the call."
        ),
    ]
    status: Annotated[int | None, Meta(description="Of the provider's HTTP answer.")]
    ms: int
    tokens_in: Annotated[
        int | UnsetType, Meta(description="What the provider may charge beside the usage of the line.")
    ] = UNSET
    tokens_out: int | UnsetType = UNSET
    estimated: Annotated[bool | UnsetType, Meta(description="The prompt is estimated.")] = UNSET


class Line(Struct):
    """A line of an account's ledger.

    `kind` is `carry` for the sum of lines that are not stored any more, and `unreadable` for one that cannot be read.
    """

    request_id: str
    kind: str
    at: Time
    model: str | None
    served_model: str | None
    provider: str | None
    key: str | None
    amount: Annotated[Amount, Meta(description="Negative for a charge.")]
    balance: Annotated[Amount, Meta(description="After the line.")]
    usage: dict[str, Any]
    estimated: bool
    attempts: int
    hold: Amount | UnsetType = UNSET
    uncollected: Amount | UnsetType = UNSET
    late: bool | UnsetType = UNSET
    endpoint: str | UnsetType = UNSET
    upstream: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    price: Any = UNSET
    price_factor: str | UnsetType = UNSET
    upstream_cost: Annotated[
        Amount | UnsetType, Meta(description="What the operator pays; only for tokens without an account.")
    ] = UNSET
    service_tier: str | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    first_token_ms: int | UnsetType = UNSET
    clamped: Any = UNSET
    reclaimed: Any = UNSET
    refunds: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    user: Annotated[str | UnsetType, Meta(description="The id of the user who has the key.")] = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    session: Annotated[str | UnsetType, Meta(description="The id of the session; absent for a call without one.")] = (
        UNSET
    )
    hooks: Annotated[
        dict[str, str] | UnsetType, Meta(description="What came of each hook of its model; absent without hooks.")
    ] = UNSET
    joined: Annotated[
        Joined | UnsetType, Meta(description="Where the parts of two targets meet, in an answer that was cut.")
    ] = UNSET
    answers: Annotated[
        list[AttemptAnswer] | UnsetType, Meta(description="Of attempts, in the order in which they ended.")
    ] = UNSET


class AuditReport(Struct):
    """What an audit of the ledger found. It is clean without mismatches, superseded lines and lost changes."""

    accounts: int
    lines: int
    history_lines: int
    recomputed: int
    not_recomputed: int
    left_lines: Annotated[int, Meta(description="Lines that left the store; the database has them.")]
    mismatches: list[dict[str, Any]]
    unreachable: list[str]
    moving: list[str]
    late: list[dict[str, Any]]
    uncollected: list[dict[str, Any]]
    overdrawn: list[dict[str, Any]]
    superseded: Annotated[
        list[dict[str, Any]], Meta(description="The first lines that the store has lost and nothing has booked again.")
    ]
    superseded_lines: Annotated[int, Meta(description="The number of all such lines.")]
    changes: Annotated[
        list[dict[str, Any]], Meta(description="The newest changes of keys and accounts that the store has lost.")
    ]
    lost_changes: Annotated[int, Meta(description="The number of all such changes.")]
    clean: bool


class Model(Struct):
    """A model of the configuration; `price` is the one that holds today."""

    id: str
    provider: str
    model: str
    groups: list[str]
    price: dict[str, Any]
    price_version: str
    later_prices: list[dict[str, Any]]
    targets: list[dict[str, Any]]
    fallbacks: list[str]
    aliases: list[str]
    endpoints: list[str]
    price_factor: Annotated[
        Amount | UnsetType, Meta(description="Of an account's prices: the factor that they contain.")
    ] = UNSET
    unreadable: Annotated[
        bool | UnsetType,
        Meta(description="Of an account's prices: its own price cannot be read, so calls of the model are refused."),
    ] = UNSET


class TargetHealth(Struct):
    """The state of a target of a model with one of its credentials."""

    model: str
    provider: str
    credential: Annotated[int, Meta(description="Its number in the provider's `credentials`, from 1.")]
    upstream_model: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["ok", "open", "due"]})]
    cause: str
    until: str


class ProviderList(Struct):
    """A provider that is asked for its models, and how the last questions ended."""

    provider: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["ok", "failing", "expired", "waiting"]})]
    served: int
    not_served: Annotated[dict[str, int], Meta(description="How many models, by reason.")]
    last_success: Annotated[str, Meta(description="Of the list that is in use; empty if there is none.")]
    last_failure: str
    error: str


class PastListPrice(Struct):
    """A price in a provider's list that another one has replaced."""

    since: str
    price: dict[str, str]


class DiscoveredModel(Struct):
    """A model in a provider's list."""

    provider: str
    upstream_model: str
    id: Annotated[str, Meta(description="The name for callers; empty if no pattern fits.")]
    pattern: str
    state: Annotated[str, Meta(description="`served`, or the reason why it is not.")]
    detail: str
    price: Annotated[dict[str, str], Meta(description="In the list, in USD, without `markup`.")]
    since: Annotated[str, Meta(description="The day on which the list had this price first.")]
    earlier: list[PastListPrice]


class Machine(Struct):
    """A gateway that runs with this store, and the hash of its configuration."""

    name: str
    configuration: str
    version: str
    seen: str


class Plugin(Struct):
    """A plugin: what it can do, and why it is not in use."""

    name: str
    version: str
    source: str
    providers: list[str]
    hooks: list[str]
    capabilities: list[str]
    state: str
    reason: str


class Reloaded(Struct):
    """The process that was asked to reload."""

    pid: int
    forced: bool


class Delivery(Struct):
    """An event on its way to a webhook or a mailbox."""

    event: str
    type: str
    at: Time
    account: str
    channel: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["waiting", "failed"]})]
    attempts: int
    next_attempt: Time | None
    failed: Time | None
    problem: str


class Queued(Struct):
    """How many deliveries are queued again."""

    queued: int


class Channel(Struct):
    """What a channel answered to a test event."""

    channel: str
    is_taken: bool
    answer: str


class Threshold(Struct):
    """The balance at which the owners of an account are notified; null for that of the configuration."""

    account: str
    balance_low: Amount | None


class ErrorBody(Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct):
    """The body of every error."""

    error: ErrorBody
