"""What must hold at the end of a schedule, when every fault is over."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.history.audit import audit_history
from gateway.ledger import Ledger
from gateway.store import Store
from tests.simulation.history_end import HistoryEnd
from tests.simulation.upstream import PROMPT, WORD

if TYPE_CHECKING:
    from tests.simulation.callers import Outcome
    from tests.simulation.world import World

NAME, ACCOUNT = "acme", b"{a:acme}"
CHARGES = ("use", "reclaim", "adj")
AFTER = 1.0  # seconds between the end of a call and the write of its settlement
TAKEN_OVER = 130.0  # seconds after a crash until the files of the dead are taken over
#: Faults after which a settlement that no journal has is lost.
LOSSES = frozenset(
    {
        "worker_is_killed", "machine_crashes", "power_fails", "store_loses_the_last_moment", "store_restarts",
        "reply_is_lost", "connections_are_cut", "store_is_away", "store_pauses",
    }
)  # fmt: skip
LOST = frozenset({"store_loses_the_last_moment"})  # faults after which what was written last may be gone


class Line(Struct, frozen=True):
    """What is booked at once."""

    number: int
    kind: str
    amount: int
    request_id: str


async def broken_promises(world: World, store: Store, ledger: Ledger) -> list[str]:
    """The promises that do not hold, as texts."""
    keys = world.store.server.model.keys
    account: dict[bytes, bytes] = keys.values[ACCOUNT]
    lines = _lines(keys.values[ACCOUNT + b":lg"])
    broken: list[str] = []
    if world.history is not None:
        broken += await _of_history(world.history, store, lines)
        lines = [Line(one.n, one.kind, one.amount, one.request_id) for one in world.history.lines(NAME)]
    balance, held = int(account[b"bal"]), int(account[b"held"])
    if held:
        broken.append(f"{held} are held although no call runs")
    if balance != (total := sum(line.amount for line in lines)):
        broken.append(f"the balance is {balance}, and its lines sum up to {total}")
    if balance < 0:
        broken.append(f"the balance is {balance}")
    by_request: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_request[line.request_id].append(line)
    for request_id, found in by_request.items():
        kinds = [line.kind for line in found if line.kind != "adj"]
        if len(kinds) > len(set(kinds)):
            broken.append(f"{request_id} is booked {len(found)} times")
    _name_outcomes(world)
    asked = {outcome.request_id for outcome in world.outcomes}
    broken += [
        f"{one} is charged and was never asked"
        for one, found in by_request.items()
        if one not in asked and any(line.kind in CHARGES and line.amount for line in found)
    ]
    for outcome in world.outcomes:
        broken += _of_call(world, outcome, by_request.get(outcome.request_id, []))
    broken += _of_repetitions(world, by_request)
    report = await ledger.audit()
    broken += [f"the audit finds {mismatch}" for mismatch in report.mismatches]
    return broken


def _lines(stream: Any) -> list[Line]:
    found = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in stream.entries.values()]
    return [Line(int(one[b"n"]), one[b"kind"].decode(), int(one[b"amount"]), one[b"rid"].decode()) for one in found]


async def _of_history(history: HistoryEnd, store: Store, lines: list[Line]) -> list[str]:
    """The database has each line of the store, and all that left it, once."""
    found = {one.n: Line(one.n, one.kind, one.amount, one.request_id) for one in history.lines(NAME)}
    broken = [
        f"line {one.number} of {one.request_id} is not in the database" for one in lines if one.number not in found
    ]
    broken += [
        f"line {one.number} of {one.request_id} is another one in the database"
        for one in lines
        if found.get(one.number, one) != one
    ]
    last = max((one.number for one in lines), default=len(found))
    if sorted(found) != list(range(1, last + 1)):
        broken.append(f"the database has {len(found)} lines, and the last one of the store is {last}")
    report = await audit_history(store, history.open(), history.sql())
    return broken + [f"the audit of the history finds {mismatch}" for mismatch in report.mismatches]


def _name_outcomes(world: World) -> None:
    """A caller whose connection was cut before the head knows no id: it is that of a request with its prompt."""
    known = {outcome.request_id for outcome in world.outcomes}
    for outcome in world.outcomes:
        if not outcome.request_id:
            prompt = f"call {outcome.number}"
            found = (one for one, truth in world.upstream.truths.items() if truth.prompt == prompt and one not in known)
            outcome.request_id = next(found, "")
            known.add(outcome.request_id)


def _of_call(world: World, outcome: Outcome, lines: list[Line]) -> list[str]:
    if not outcome.request_id:
        return []
    if outcome.replayed:
        kept = {one.text for one in world.outcomes if one.name == outcome.name and one.whole and not one.replayed}
        if outcome.whole and kept and outcome.text not in kept:
            return [f"call {outcome.number} {outcome.request_id} was replayed with another text"]
        return [f"call {outcome.number} was replayed and charged"] if lines else []
    charged = -sum(line.amount for line in lines)
    truth = world.upstream.truths.get(outcome.request_id)
    name = f"call {outcome.number} {outcome.request_id}"
    if truth is None:
        return [f"{name} never reached the upstream and costs {charged}"] if charged else []
    is_revoked = outcome.key == world.callers[1].id and outcome.began > world.revoked_at
    if is_revoked and charged and not LOST & set(world.named):
        return [f"{name} began with a revoked key and costs {charged}"]
    prices = [
        PROMPT * price.input + truth.words * WORD * price.output
        for price in world.prices
        if price.since <= outcome.ended and price.until >= outcome.began
    ]
    may_lose = _may_lose(world, outcome)
    most = max(prices) * (1 if outcome.whole and not may_lose else 2)  # of a cut answer the tokens are estimated
    if not 0 <= charged <= most:
        return [f"{name} costs {charged}, at most {most} are right"]
    if may_lose:
        return []
    if outcome.whole and charged not in prices:
        return [f"{name} is whole and costs {charged} instead of {' or '.join(map(str, prices))}"]
    words = len(outcome.text.split())
    if outcome.whole and (words != truth.words or not truth.whole):
        return [f"{name} seems whole with {words} words, and the upstream sent {truth.words}"]
    if words and not outcome.name and not charged:
        return [f"{name} has delivered {words} words and costs nothing"]
    return []


def _may_lose(world: World, outcome: Outcome) -> bool:
    """Whether its charge may be gone: it ended when its machine lost writes, or could make none and something else
    failed, too."""
    windows = world.lost + (world.unwritten if LOSSES & set(world.named) else [])
    # The call of a caller who left a hung worker may run until the power fails.
    after = TAKEN_OVER if outcome.dead or outcome.left else AFTER
    return any(
        machine == outcome.machine and outcome.began <= until + AFTER and outcome.ended >= since - after
        for machine, since, until in windows
    )


def _of_repetitions(world: World, by_request: dict[str, list[Line]]) -> list[str]:
    """A request that was repeated with its key is charged once, or the charge of a dead one was given back."""
    if LOST & set(world.named):
        return []  # the answers that it kept are lost, so a repetition runs again (docs/api.md, "Idempotency-Key")
    named: dict[str, set[str]] = defaultdict(set)
    for outcome in world.outcomes:
        if outcome.name:
            named[outcome.name].add(outcome.request_id)
    charged = {
        name: [one for one in ids if sum(line.amount for line in by_request.get(one, ()))]
        for name, ids in named.items()
    }
    return [f"{name} is charged as {', '.join(sorted(ids))}" for name, ids in charged.items() if len(ids) > 1]
