"""What an admission would decide, by the same rules: nothing is held, counted or written.

`explain.lua` shares `rules.lua` with `admit.lua`. When a rule refuses, the script ignores that rule and runs the others
again. So `refusals` names every rule that refuses; an admission would be refused by the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway import errors
from gateway.billing.quote import Quote
from gateway.ledger.admission import MAX_TRIES, NOACCT, REGROUP, call_arguments, group_arguments, group_keeps_changing
from gateway.ledger.api_key import ApiKey
from gateway.ledger.limits import NO_LIMITS, GroupLimits
from gateway.ledger.scripts import Links, Scripts, slot
from gateway.store.command import text_fields


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
    links: Links, scripts: Scripts, request_id: str, key: ApiKey, quote: Quote, *, groups: Mapping[str, GroupLimits]
) -> DryRun:
    """Run the rules; InvalidApiKey when there is no such account."""
    account, group = slot(key.account), "default"
    for _ in range(MAX_TRIES):
        args = group_arguments(group, groups.get(group, NO_LIMITS))
        args += call_arguments(group, request_id, key, quote)
        first, *rest = await links.link(account).eval(scripts.explain, [account], args)
        if first == NOACCT:
            raise errors.InvalidApiKey()
        if first != REGROUP:
            refusals, facts = rest
            return DryRun(
                group,
                [Refusal(code, wait / 1_000_000) for code, wait in zip(refusals[::2], refusals[1::2], strict=True)],
                text_fields(facts),
            )
        group = rest[0].decode()
    raise group_keeps_changing()
