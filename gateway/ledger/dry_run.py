"""What an admission would decide, by the same rules: nothing is held, counted or written.

`explain.lua` shares `rules.lua` with `admit.lua`. When a rule refuses, the script ignores that rule and runs the others
again. So `refusals` names every rule that refuses; an admission would be refused by the first of them.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.billing.quote import Quote
from gateway.ledger.admission import run_rules
from gateway.ledger.api_key import ApiKey
from gateway.ledger.limits import GroupTable
from gateway.ledger.scripts import Scripts
from gateway.store.command import text_fields
from gateway.store.links import Links


class Refusal(Struct, frozen=True):
    """A rule that refuses: its code in rules.lua, and after how many seconds it may pass, or 0."""

    code: int
    wait: float


class DryRun(Struct, frozen=True):
    """Refusals in the order of the rules, and the values the rules read. No refusal: the call would be admitted."""

    group: str
    refusals: list[Refusal]
    facts: dict[str, str]


async def dry_run(
    links: Links, scripts: Scripts, request_id: str, key: ApiKey, quote: Quote, *, groups: GroupTable
) -> DryRun:
    """Run the rules; StoreUnavailable when there is no such account."""
    group, (_, refusals, facts) = await run_rules(
        links, scripts.explain, request_id, key, quote, groups=groups, repeatable=True
    )
    return DryRun(
        group,
        [Refusal(code, wait / 1_000_000) for code, wait in zip(refusals[::2], refusals[1::2], strict=True)],
        text_fields(facts),
    )
