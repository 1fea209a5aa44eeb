"""The promises of docs/prices.md and docs/operations, checked on the outcome of a round.

`broken(outcome)` yields the promises that do not hold, each with the figures. It computes prices by itself, and counts
what was delivered from the caller's side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from gateway.amounts import NANO
from gateway.billing.usage_bounds import TOKENS_ABOVE_REQUEST
from tests.money.cases import HIDDEN, VARIANTS, Round
from tests.money.ingress import ingress_of
from tests.money.observed import Outcome, Seen
from tests.money.upstreams import HONEST, quarter_tokens

#: Currency units per million tokens; the reasoning price is the highest, so it is what is held.
PRICE = {"input": 10, "cached_input": 1, "output": 50, "reasoning": 60}
OWN = {"input": 7, "cached_input": 3, "output": 33, "reasoning": 41}  # of an account with own amounts
PRICED = {"in_text": "input", "in_cached": "cached_input", "out_text": "output", "out_reasoning": "reasoning"}
MAX_OUTPUT = 6000  # of every model, in tokens
WITHOUT_EARLY_COUNTS = ("cohere", "responses")  # dialects
NOT_TOKENS = {"requests", "estimated"}
ENDED_BY_CALLER = ("ok", "client_closed")

SOLVENT = "the balance less the floor covers all holds"
BUDGETS = "a key spends no more than its budget"
SESSIONS = "a session spends no more than its budget"
CAPS = "calls of a month are charged no more than its cap"
WITHIN = "a charge is at most the hold and the room"
OWED = "a cost that can be paid is charged"
ONE = "one request id has one charge"
RECOMPUTED = "lines and uncollected are usage times price"
HELD = "what an honest upstream may produce was held"
FREE = "a failed call before content costs nothing"
DELIVERED = "what was delivered is charged"
BOUNDS = "counts are believed within bounds"
RIGHT = "true counts are charged as they are"
EARLY = "counts told early are charged"
FREED = "no hold is left"
AUDIT = "the audit is clean"
PROMISES = (
    SOLVENT,
    BUDGETS,
    SESSIONS,
    CAPS,
    WITHIN,
    OWED,
    ONE,
    RECOMPUTED,
    HELD,
    FREE,
    DELIVERED,
    BOUNDS,
    RIGHT,
    EARLY,
    FREED,
    AUDIT,
)


class Broken(NamedTuple):
    """A promise that does not hold."""

    promise: str
    figures: str


def broken(outcome: Outcome) -> Iterator[Broken]:
    """Every promise that the round breaks."""
    yield from _one_charge(outcome)
    yield from _solvent(outcome)
    yield from _budgets(outcome)
    yield from _sessions(outcome)
    yield from _cap(outcome)
    yield from _freed(outcome)
    for call in outcome.calls:
        if call.hold is not None and len(call.lines) == 1:
            yield from _charge(call, outcome)
            yield from _failure(call)
            yield from _counts(call)
    yield from (Broken(AUDIT, mismatch) for mismatch in outcome.audit)


# The account ---------------------------------------------------------------------------------------------------------


def _solvent(outcome: Outcome) -> Iterator[Broken]:
    for sample in [*outcome.samples, outcome.end]:
        if sample.balance - sample.floor < sample.held:
            yield Broken(SOLVENT, f"balance {sample.balance}, floor {sample.floor}, held {sample.held}")
    # Holds that were surely there when a line was written: admitted before it, settled after it.
    numbers = {call.request_id: call.lines[0].n for call in outcome.calls if call.lines}
    for line in outcome.lines:
        held = sum(call.granted for call in _held_at(outcome, line.n, line.milliseconds, numbers))
        if line.balance - outcome.round.floor < held:
            yield Broken(SOLVENT, f"line {line.n}: balance {line.balance}, floor {outcome.round.floor}, held {held}")


def _held_at(outcome: Outcome, number: int, milliseconds: int, numbers: dict[str, int]) -> Iterator[Seen]:
    for call in outcome.calls:
        admitted = call.hold.admitted_at // 1000 if call.hold is not None else milliseconds
        if admitted < milliseconds and numbers.get(call.request_id, 0) > number:
            yield call


def _budgets(outcome: Outcome) -> Iterator[Broken]:
    charges: dict[str, int] = {}
    for call in outcome.calls:
        if call.hold is not None:
            kid = call.hold.key.id
            charges[kid] = charges.get(kid, 0) - sum(line.amount for line in call.lines)
    for kid, key in outcome.keys.items():
        if key.budget is not None and key.spent > key.budget:
            yield Broken(BUDGETS, f"budget {key.budget}, spent {key.spent}")
        if key.spent != charges.get(kid, 0):
            yield Broken(BUDGETS, f"spent {key.spent}, lines {charges.get(kid, 0)}")


def _sessions(outcome: Outcome) -> Iterator[Broken]:
    budget = outcome.round.session_budget
    for sample in [*outcome.samples, outcome.end]:
        for session, (spent, held) in sample.sessions.items():
            if budget is None or spent + held > budget:
                yield Broken(SESSIONS, f"{session}: budget {budget}, spent {spent}, held {held}")
    for session, state in outcome.end.sessions.items():
        calls = [call for call in outcome.calls if call.case.session == session and call.granted]
        charges = -sum(line.amount for call in calls for line in call.lines)
        if state.spent != charges:
            yield Broken(SESSIONS, f"{session}: spent {state.spent}, lines {charges}")


def _cap(outcome: Outcome) -> Iterator[Broken]:
    cap, samples = outcome.round.cap, [*outcome.samples, outcome.end]
    if cap is None or len({sample.month for sample in samples}) > 1:  # a new month has begun
        return
    for sample in samples:
        if sample.spent + sample.held > cap:
            yield Broken(CAPS, f"cap {cap}, spent {sample.spent}, held {sample.held}")
    charges = -sum(line.amount for call in outcome.calls for line in call.lines)
    if outcome.end.spent != charges:
        yield Broken(CAPS, f"spent {outcome.end.spent}, lines {charges}")


def _freed(outcome: Outcome) -> Iterator[Broken]:
    of_keys = [key.held for key in outcome.keys.values()]
    of_sessions = [state.held for state in outcome.end.sessions.values()]
    if outcome.end.held or outcome.holds or any(of_keys) or any(of_sessions):
        held = f"of keys {of_keys}, of sessions {of_sessions}"
        yield Broken(FREED, f"held {outcome.end.held}, holds {outcome.holds}, {held}")


def _one_charge(outcome: Outcome) -> Iterator[Broken]:
    known = {call.request_id for call in outcome.calls if call.hold is not None}
    for line in outcome.lines:
        if line.kind != "open" and line.request_id not in known:
            yield Broken(ONE, f"a line of {line.request_id}, which was not admitted")
    for call in outcome.calls:
        if call.hold is None:
            continue
        charge = -sum(line.amount for line in call.lines)
        if [line.kind for line in call.lines] != ["use"]:
            yield Broken(ONE, f"{_of(call)}: lines {[(line.kind, line.amount) for line in call.lines]}")
        elif not _is_described(call, meta := call.lines[0].meta):
            yield Broken(ONE, f"{_of(call)}: a line without endpoint, price version or hold: {meta}")
        elif outcome.markers.get(call.request_id) != charge:
            yield Broken(ONE, f"{_of(call)}: marker {outcome.markers.get(call.request_id)}, lines {charge}")


def _is_described(call: Seen, meta: dict[str, Any]) -> bool:
    """Whether a line has its endpoint, a price version and a hold."""
    name = ingress_of(call.case).endpoint_of(call.case).name
    return meta.get("endpoint") == name and bool(meta.get("price") and meta.get("hold"))


# One call ------------------------------------------------------------------------------------------------------------


def _charge(call: Seen, outcome: Outcome) -> Iterator[Broken]:
    (line,), hold = call.lines, call.hold
    assert hold is not None
    charge, cost = -line.amount, -line.amount + line.uncollected
    price = _price(line.meta.get("usage", {}), outcome.round)
    if cost != price:
        yield Broken(RECOMPUTED, f"{_of(call)}: charge {charge}, uncollected {line.uncollected}, price {price}")
    if charge < min(cost, hold.amount):
        yield Broken(OWED, f"{_of(call)}: cost {cost}, hold {hold.amount}, charge {charge}")
    if charge < 0 or line.uncollected < 0:
        yield Broken(WITHIN, f"{_of(call)}: charge {charge}, uncollected {line.uncollected}")
    free = outcome.round.balance - outcome.round.floor
    if outcome.round.cap is not None:
        free = min(free, outcome.round.cap)
    if outcome.round.session_budget is not None and call.case.session and call.granted:
        free = min(free, outcome.round.session_budget)
    budget = outcome.keys[hold.key.id].budget
    most = max(hold.amount, free if budget is None else min(free, budget))
    if charge > min(cost, most):
        yield Broken(WITHIN, f"{_of(call)}: cost {cost}, hold {hold.amount}, at most {most}, charge {charge}")
    if len(outcome.calls) == 1 and charge != min(cost, most):
        yield Broken(OWED, f"{_of(call)}: alone, cost {cost}, at most {most}, charge {charge}")
    # A stream that is cut is charged by our count, which may be above an honest upstream's:
    # `test_stream_within_its_limit_is_not_cut_because_our_count_of_it_is_too_high`.
    honest = call.case.cell.behaviour in HONEST and not line.meta.get("estimated", False)
    if line.uncollected and _is_bounded(call) and honest:
        yield Broken(HELD, f"{_of(call)}: cost {cost}, hold {hold.amount}, limit {call.truth.limit}")
    limit, asked = call.truth.limit, call.case.limit
    if _is_bounded(call) and (limit is None or limit > (asked or limit)):
        yield Broken(HELD, f"{_of(call)}: asked for {asked} tokens, the upstream for {limit}")
    elif _is_bounded(call) and call.granted < (limit or 0) * _reasoning(outcome.round) * NANO // 1_000_000:
        yield Broken(HELD, f"{_of(call)}: granted {call.granted}, the upstream was asked for {limit} tokens")


def _is_bounded(call: Seen) -> bool:
    """Whether the upstream must have got an output limit, all of which was held."""
    case = call.case
    return call.truth.requests > 0 and (case.limit is not None or case.variant == HIDDEN or not case.stream)


def _failure(call: Seen) -> Iterator[Broken]:
    (line,), outcome = call.lines, call.lines[0].meta.get("outcome")
    cost = -line.amount + line.uncollected
    sent = call.truth.requests and not call.truth.refused
    if cost and not call.words and (outcome not in ENDED_BY_CALLER or not sent):
        yield Broken(FREE, f"{_of(call)}: outcome {outcome}, requests {call.truth.requests}, cost {cost}")
    if call.words and not cost and not (call.left and call.case.variant == "void"):
        yield Broken(DELIVERED, f"{_of(call)}: outcome {outcome}, {call.words} words, cost {cost}")


def _counts(call: Seen) -> Iterator[Broken]:
    case, truth, meta = call.case, call.truth, call.lines[0].meta
    usage, estimated = meta.get("usage", {}), meta.get("estimated", False)
    into = sum(count for name, count in usage.items() if name.startswith("in_"))
    out = sum(count for name, count in usage.items() if name.startswith("out_"))
    charged = bool(into or out)
    if into > call.size + TOKENS_ABOVE_REQUEST:
        yield Broken(BOUNDS, f"{_of(call)}: {into} tokens of input, {call.size} bytes")
    by_time = call.left and estimated and (case.variant in (HIDDEN, VARIANTS[1]))  # a drain without counts
    ours = math.ceil(quarter_tokens(truth.words) / 4)
    limit = _limit(call)
    if limit is not None and not by_time and out > max(limit * 1.1 + 64, ours):
        yield Broken(BOUNDS, f"{_of(call)}: {out} tokens of output, limit {limit}, written {ours}")
    if charged and out * 4 + 4 < quarter_tokens(call.words) / 4:
        yield Broken(BOUNDS, f"{_of(call)}: {out} tokens of output, {call.words} words received")
    if charged and not estimated and case.cell.behaviour in ("no counts", "impossible counts"):
        yield Broken(BOUNDS, f"{_of(call)}: {usage} without counts is not estimated")
    if call.whole and case.cell.behaviour in HONEST and ((into, out) != (case.prompt_tokens, truth.made) or estimated):
        yield Broken(RIGHT, f"{_of(call)}: {into} and {out} tokens, true {case.prompt_tokens} and {truth.made}")
    told = case.stream and case.cell.behaviour == "early counts" and case.cell.dialect not in WITHOUT_EARLY_COUNTS
    if told and charged and call.words and (into, usage.get("in_cached", 0)) != (case.prompt_tokens, case.cached):
        yield Broken(EARLY, f"{_of(call)}: {usage}, true {case.prompt_tokens}, of which {case.cached} cached")


def _limit(call: Seen) -> int | None:
    """The limit that the upstream got."""
    return call.truth.limit


def _price(usage: dict[str, float], one: Round) -> int:
    """Nano-units, rounded up once."""
    unknown = {name for name, count in usage.items() if count} - set(PRICED) - NOT_TOKENS
    assert not unknown, unknown
    millionths = sum(int(usage.get(name, 0)) * _table(one)[kind] * NANO for name, kind in PRICED.items())
    return math.ceil(millionths * one.factor / 1_000_000)


def _table(one: Round) -> dict[str, int]:
    return OWN if one.pricing == "amounts" else PRICE


def _reasoning(one: Round) -> Fraction:
    """The highest price of a token of output."""
    return _table(one)["reasoning"] * one.factor


def _of(call: Seen) -> str:
    """The call in a report."""
    case = call.case
    how = "streamed" if case.stream else "whole"
    return f"{' / '.join(case.cell)} ({how}, {case.variant}, limit {case.limit}, {case.words} words) {call.request_id}"
