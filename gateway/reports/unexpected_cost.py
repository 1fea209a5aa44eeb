"""Why a call cost more than expected: it is compared with the usual call of its key and model."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.amounts import format_amount
from gateway.history.usage_sums import Sums
from gateway.reports.call_details import CallDetails
from gateway.reports.reports import ReportQuery, Reports

PERIOD = timedelta(days=30)  # before the call
ENOUGH = 5  # calls to compare with
MORE = Fraction(5, 4)  # what counts as more than usual

_IN = ("in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_audio_cached", "in_image")
_OUT = ("out_text", "out_audio", "out_image")


class Comparison(Struct, frozen=True):
    """The usual call and the reasons; amounts are nano-units, counts averages. `calls` is 0 if there are too few."""

    calls: int  # that were compared
    usual_cost: int
    usual_in: int
    usual_out: int  # without hidden reasoning
    usual_reasoning: int
    is_more: bool
    reasons: list[str]


async def compare(reports: Reports, actor: Actor, call: CallDetails) -> Comparison:
    """Compare a call with the calls of its key and model in the thirty days before it."""
    last = call.lines[-1]
    meta, charged = last.meta, -sum(line.amount for line in call.lines)
    filters = {"account": [call.account], "key": [meta.get("key", "")], "model": [meta.get("model", "")]}
    query = ReportQuery(since=last.at - PERIOD, until=last.at, filters=filters)
    sums = (await reports.report(actor, query)).total
    calls = sums["calls"] - 1 if sums["calls"] else 0  # the call itself is among them
    reasons = _circumstances(call, meta)
    if calls < ENOUGH:
        return Comparison(0, 0, 0, 0, 0, False, reasons)
    usage = meta.get("usage", {})
    own = {name: int(usage.get(name, 0)) for name in (*_IN, *_OUT, "out_reasoning")}
    usual = {name: (sums[name] - own[name]) // calls for name in own}
    cost = (sums["cost"] - charged) // calls
    is_more = charged > cost * MORE
    return Comparison(
        calls,
        cost,
        sum(usual[name] for name in _IN),
        sum(usual[name] for name in _OUT),
        usual["out_reasoning"],
        is_more,
        [*_counts(own, usual), *_average(sums, calls, call), *reasons],
    )


def _counts(own: dict[str, int], usual: dict[str, int]) -> list[str]:
    reasons = []
    for what, names in (
        ("The prompt was longer than usual", _IN),
        ("The answer was longer than usual", _OUT),
        ("More hidden reasoning than usual was charged", ("out_reasoning",)),
    ):
        now, before = sum(own[name] for name in names), sum(usual[name] for name in names)
        if now > before * MORE and now - before > 10:
            reasons.append(f"{what}: {now:,} tokens instead of {before:,}.")
    prompt, usual_prompt = sum(own[name] for name in _IN), sum(usual[name] for name in _IN)
    if usual_prompt and prompt:
        share, usual_share = 100 * own["in_cached"] // prompt, 100 * usual["in_cached"] // usual_prompt
        if usual_share - share >= 10:
            reasons.append(f"Less of the prompt came from the provider's cache: {share} % instead of {usual_share} %.")
    return reasons


def _average(sums: Sums, calls: int, call: CallDetails) -> list[str]:
    searches = int(call.lines[-1].meta.get("usage", {}).get("web_searches", 0))
    before = (sums["web_searches"] - searches) / calls
    return [f"It made {searches} web searches; usual are {before:.1f}."] if searches > before + 1 else []


def _circumstances(call: CallDetails, meta: dict[str, Any]) -> list[str]:
    reasons = []
    model, served = meta.get("model"), call.lines[-1].served_model
    if served and served != model:
        reasons.append(f"The model {served} answered instead of {model}.")
    if tier := meta.get("service_tier"):
        factor = call.cost.tier_factor if call.cost is not None else Fraction(1)
        if factor > 1:
            reasons.append(f"The service tier {tier} multiplies the price by {float(factor):g}.")
    if call.cost is not None and call.cost.minimum and call.cost.cost == call.cost.minimum:
        reasons.append(f"The price has a minimum of {format_amount(call.cost.minimum)} for each call.")
    if meta.get("estimated"):
        reasons.append("The provider sent no counts, so the tokens were estimated from what was delivered.")
    if meta.get("reclaimed"):
        reasons.append("The call broke off in the gateway, and was charged as far as it was delivered.")
    return reasons
