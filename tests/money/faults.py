"""Promises broken on purpose: each fault changes one line of a script or one function, and names what must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from gateway.amounts import NANO
from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.chat_usage import ChatCounting
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.billing.usage_bounds import Counted
from gateway.encoders.answer_encoder import AnswerEncoder
from gateway.encoders.chat import ChatStreamEncoder
from gateway.encoders.gemini.stream import GeminiStreamEncoder
from gateway.encoders.messages.stream import MessagesStreamEncoder
from gateway.encoders.responses.stream import ResponsesStreamEncoder
from gateway.inference.call import Call
from gateway.ledger import scripts
from gateway.ledger.hold import Hold
from gateway.ledger.settlement_writer import SettlementWriter
from gateway.store.command import Script
from tests.money import promises

Plant = Callable[[pytest.MonkeyPatch], None]


def lua(name: str, before: str, after: str) -> Plant:
    """Replace `before` in the script of this name."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        load = scripts.load_script

        def loaded(wanted: str) -> Script:
            script = load(wanted)
            if wanted != name:
                return script
            assert script.source.count(before) == 1, f"{name}.lua has another text"
            return Script(script.source.replace(before, after))

        monkeypatch.setattr(scripts, "load_script", loaded)

    return plant


def books_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is settled again, as a call of its own."""
    book = SettlementWriter.book

    def twice(self: SettlementWriter, hold: Hold, record: Any, *, free: bool = False) -> None:
        book(self, hold, record, free=free)
        if record is not None and record.cost:
            book(self, structs.replace(hold, request_id=f"{hold.request_id}-again"), record)

    monkeypatch.setattr(SettlementWriter, "book", twice)


def believes_every_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of counts are not applied."""
    monkeypatch.setattr("gateway.api.endpoints.chat_usage.bound_usage", lambda usage, *_: Counted(usage))


def never_believes_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own count is charged in place of the upstream's."""
    monkeypatch.setattr(ChatCounting, "count", lambda self, _, delivered, __: Counted(self.delivered(delivered)))


def sends_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that was held is not sent."""
    monkeypatch.setattr(ChatEndpoint, "limit_output", lambda self, adapted, tokens: adapted)


def charges_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of a call that failed before any content is charged."""
    usage = Call.usage
    monkeypatch.setattr(Call, "usage", lambda self: usage(self) or self.quote.prompt)


def forgets_callers_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered to a caller who left is not charged."""
    usage = Call.usage
    monkeypatch.setattr(Call, "usage", lambda self: None if self.client_gone else usage(self))


def does_not_count_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost lacks a part of the usage that the line has."""
    cost = Call.cost
    monkeypatch.setattr(Call, "cost", lambda self, usage: cost(self, structs.replace(usage, in_cached=0)))


def counts_nothing_delivered(kind: type[AnswerEncoder]) -> Plant:
    """A stream without counts costs its prompt alone, in one dialect of callers."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        feed = kind.feed

        def fed(self: AnswerEncoder, chunk: Any) -> bytes:
            frames = feed(self, chunk)
            self.delivered.text_quarter_tokens = 0
            return frames

        monkeypatch.setattr(kind, "feed", fed)

    return plant


def forgets_early_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of an answer that is not whole are dropped."""
    count = ChatCounting.count

    def counted(self: ChatCounting, told: Any, delivered: Any, whole: bool) -> Counted:
        return count(self, told if whole else None, delivered, whole)

    monkeypatch.setattr(ChatCounting, "count", counted)


#: By name: the fault, and the promises of which one must be reported as broken.
def charges_without_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is charged at the list price."""
    cost = Call.cost

    def listed(self: Call, usage: Usage) -> int:
        if self.settled:
            return structs.replace(self.quote.price, factor=NANO).cost(usage, service_tier=self.service_tier)
        return cost(self, usage)

    monkeypatch.setattr(Call, "cost", listed)


def holds_without_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold is that of the list price."""
    worst = Price.worst

    def listed(self: Price, usage: Usage, *, service_tier: str | None = None) -> int:
        price = structs.replace(self, held=structs.replace(self.held or self, factor=NANO))
        return worst(price, usage, service_tier=service_tier)

    monkeypatch.setattr(Price, "worst", listed)


FAULTS: dict[str, tuple[Plant, set[str]]] = {
    "charges above hold and room": (
        lua("settle", "return math.max(0, left)", "return 1e15"),
        {promises.WITHIN, promises.SOLVENT, promises.CAPS},
    ),
    "takes money that other calls hold": (
        lua("settle", "local left = tonumber(bal) - lowest - held\n", "local left = tonumber(bal) - lowest\n"),
        {promises.SOLVENT, promises.WITHIN, promises.CAPS},
    ),
    "admits at the list price of an account with own prices": (
        lua("admit", "(account[7] or '') ~= ARGV[6]", "false"),
        {promises.RECOMPUTED},
    ),
    "charges without the factor": (charges_without_factor, {promises.RECOMPUTED, promises.AUDIT}),
    "holds without the factor": (holds_without_factor, {promises.HELD, promises.WITHIN}),
    "ignores the budget of a key": (
        lua("settle", "if of_key then", "if false then"),
        {promises.BUDGETS, promises.WITHIN},
    ),
    "ignores the budget of a session": (
        lua("settle", "if of_session then", "if false then"),
        {promises.SESSIONS, promises.WITHIN},
    ),
    "admits past the budget of a session": (
        lua("admit", "if within and within < both then", "if false then"),
        {promises.SESSIONS},
    ),
    "ignores the cap of the month": (
        lua("admit", "and lowest_balance(A, bal, floor, clock[1]) or floor", "and floor or floor"),
        {promises.CAPS, promises.WITHIN},
    ),
    "admits without money": (
        lua("admit", "if both >= hold and most >= hold then return hold end", "if true then return hold end"),
        {promises.SOLVENT, promises.BUDGETS, promises.SESSIONS, promises.CAPS},
    ),
    "charges no more than the hold": (
        lua("settle", "local most = hold + room_beyond(", "local most = hold + 0 * room_beyond("),
        {promises.OWED},
    ),
    "does not write what is uncollected": (
        lua("settle", "charged, extra = string.format('%.0f', 0 - paid), extra_fields(owed - paid)\n",
            "charged = string.format('%.0f', 0 - paid)\n"),
        {promises.RECOMPUTED},
    ),
    "keeps holds of settled calls": (
        lua("settle", "held = held - hold\n", "if hold ~= '1000000' then hold = '0' end held = held - hold\n"),
        {promises.FREED},
    ),
    "writes a wrong balance on a line": (
        lua("settle", "'bal', after, 'meta'", "'bal', bal, 'meta'"),
        {promises.AUDIT},
    ),
    "settles a call twice": (books_twice, {promises.ONE}),
    "believes every count": (believes_every_count, {promises.BOUNDS}),
    "never believes a count": (never_believes_a_count, {promises.RIGHT}),
    "sends no limit": (sends_no_limit, {promises.HELD}),
    "charges failed calls": (charges_failures, {promises.FREE}),
    "forgets callers who left": (forgets_callers_who_left, {promises.DELIVERED}),
    "does not charge cached tokens": (does_not_count_the_prompt, {promises.RECOMPUTED}),
    "forgets counts told early": (forgets_early_counts, {promises.EARLY}),
    **{
        f"counts nothing delivered as {kind.__name__}": (counts_nothing_delivered(kind), {promises.BOUNDS})
        for kind in (ChatStreamEncoder, ResponsesStreamEncoder, MessagesStreamEncoder, GeminiStreamEncoder)
    },
}  # fmt: skip
