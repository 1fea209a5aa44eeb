"""After a run: the audit, the limits over all gateways, and the history held against the upstream's log."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import msgspec
from msgspec import Struct, field

from gateway.amounts import parse_amount
from tests.chaos.history_proof import Line, Proof, Sql, compare_store, compare_sums
from tests.chaos.traffic import PER_TOKEN
from tests.chaos.truth import SPENT
from tests.fleet.calls import Call
from tests.fleet.fleet import ACCOUNTS, PREPAID, RPM, SESSION_BUDGET, TURNS, Fleet
from tests.fleet.table import most_in_a_minute
from tests.polling import until

LEASES_END = 150.0  # seconds


class Findings(Struct):
    """What was found: lines for the report, and faults."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def settled(fleet: Fleet) -> None:
    """Nothing is held, and the database has every line."""
    sql = Sql(url=fleet.database)
    async with fleet.first.gateway.session() as session:
        client: Any = session.store.client

        async def all_imported() -> bool:
            ends = await asyncio.to_thread(sql.ends)
            for account in ACCOUNTS:
                shown = await session.accounts.show(account)
                seq = int(await client.hget(f"{{a:{account}}}", "seq"))
                if shown.held or ends.get(account) != (seq, shown.balance):
                    return False
            return True

        await until(all_imported, within=LEASES_END)


async def proved(fleet: Fleet) -> Findings:
    """All of it."""
    found = Findings()
    await settled(fleet)
    await _audits(fleet, found)
    sql = Sql(url=fleet.database)
    lines = await asyncio.to_thread(sql.lines)
    await _history(fleet, sql, lines, found)
    _charges(fleet, lines, found)
    _limits(fleet, lines, found)
    return found


async def _audits(fleet: Fleet, found: Findings) -> None:
    for machine in fleet.machines:
        done = await asyncio.to_thread(machine.gateway.run, "audit")
        said = (done.stdout + done.stderr).strip()
        if done.returncode:
            found.faults.append(f"the audit of {machine.name} exits with {done.returncode}: {said[-600:]}")
    found.lines.append(f"`gateway audit` on {len(fleet.machines)} gateways: {len(found.faults)} with findings")


async def _history(fleet: Fleet, sql: Sql, lines: list[Line], found: Findings) -> None:
    """Every line of the store in the database, the same balances, and sums that agree."""
    proof = Proof(faults=[])
    by_account: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_account[line.account].append(line)
    async with fleet.first.gateway.session() as session:
        for account in ACCOUNTS:
            await compare_store(session, account, by_account[account], proof)
    compare_sums(sql, lines, proof)
    found.faults += proof.faults
    found.lines.append(f"history: {len(lines)} lines in PostgreSQL, {len(proof.faults)} that differ from the store")


def _charges(fleet: Fleet, lines: list[Line], found: Findings) -> None:
    """Each whole answer is charged exactly, and nothing else more than the upstream wrote for it."""
    charged: dict[str, int] = defaultdict(int)
    account_of: dict[str, str] = {}
    for line in lines:
        if line.kind in SPENT:
            charged[line.request_id] -= line.amount
            account_of[line.request_id] = line.account
    times = Counter(line.request_id for line in lines if line.kind in ("use", "reclaim"))
    found.faults += [f"{request} is charged {number} times" for request, number in times.items() if number > 1]
    whole = wrong = 0
    for call in fleet.load.calls:
        if not call.is_whole:
            continue
        whole += 1
        cost = charged.pop(call.attempts[-1].request_id, 0)
        if cost != call.words * PER_TOKEN:
            wrong += 1
            found.faults.append(f"{call.kind} {call.name} is charged {cost} instead of {call.words * PER_TOKEN}")
    failed = _written_for_failures(fleet.load.calls)
    rest: dict[str, int] = defaultdict(int)
    for request, cost in charged.items():
        rest[account_of[request]] += cost
    for account, cost in rest.items():
        if cost > failed[account] * PER_TOKEN:
            found.faults.append(f"{account}: {cost} charged for failed attempts, which were {failed[account]} words")
    found.lines.append(
        f"charges: {whole} whole answers, {wrong} of them not charged exactly; {sum(rest.values()) // PER_TOKEN} "
        f"tokens charged for attempts that failed at their client, of {sum(failed.values())} that these had asked for"
    )


def _written_for_failures(calls: list[Call]) -> Counter[str]:
    """By account, the words that attempts without a whole answer had asked for."""
    words: Counter[str] = Counter()
    for call in calls:
        words[call.account] += call.words * sum(bool(attempt.failure) for attempt in call.attempts)
    return words


def _limits(fleet: Fleet, lines: list[Line], found: Findings) -> None:
    budget = parse_amount(SESSION_BUDGET)
    sessions: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.account == "agents" and line.kind in SPENT:
            session = (msgspec.json.decode(line.meta) if line.meta else {}).get("session", "")
            sessions[session] -= line.amount
    over = [name for name, cost in sessions.items() if cost > budget]
    full = sum(cost == budget for cost in sessions.values())
    found.faults += [f"session {name} cost {sessions[name]} of {budget}" for name in over]
    found.lines.append(
        f"budgets of {len(sessions)} sessions of {TURNS} calls: {len(over)} exceeded, {full} used to the last unit"
    )
    served = [call.ended for call in fleet.load.calls if call.kind == "rpm" and call.is_whole]
    refused = sum(call.refused for call in fleet.load.calls if call.kind == "rpm")
    excess = most_in_a_minute(served, rate=RPM / 60, burst=RPM)
    found.lines.append(
        f"{RPM} requests a minute: {len(served)} served, {refused} refused; the most beyond the limit: {excess:.1f}"
    )
    if excess > 1:
        found.faults.append(f"{excess:.1f} requests beyond the limit of {RPM} a minute")
    spent = -sum(line.amount for line in lines if line.account == "prepaid" and line.kind in SPENT)
    found.lines.append(f"prepaid account: {spent} of {parse_amount(PREPAID)} nano-units spent, used up by 10 at once")
    if spent != parse_amount(PREPAID):
        found.faults.append(f"prepaid account: {spent} spent of {parse_amount(PREPAID)}")
