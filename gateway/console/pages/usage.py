"""`/accounts/{account}/usage`: spend over time, the list of calls, and the cost breakdown of each call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gateway.accounts.keys import KeyRecord
from gateway.admin.call_details import CallReader
from gateway.admin.call_lists import CallLists
from gateway.admin.csv_file import csv_pieces
from gateway.admin.pages import page_of
from gateway.admin.reports import Reports, restricted
from gateway.admin.times import from_micros, to_micros
from gateway.admin.unexpected_cost import compare
from gateway.amounts import format_amount
from gateway.console.pages.overview import account_refusals, report
from gateway.console.ranges import LABELS, Range, chosen_range
from gateway.console.replies import PAGE, Download, Reply, View
from gateway.console.route import Route
from gateway.console.usage_chart import ChartTable, chart_table
from gateway.console.visit import Visit
from gateway.errors import NotFound
from gateway.history.call_pages import CallFilter, CallRow
from gateway.history.refusals import RefusalSum
from gateway.history.usage_sums import Sums

FILTERS = ("key", "model", "outcome", "user")
CSV = (
    "at", "request_id", "key", "model", "served_model", "provider", "endpoint", "outcome", "tokens_in", "tokens_out",
    "amount", "uncollected", "estimated", "attempts", "duration_ms", "first_token_ms", "tags",
)  # fmt: skip
#: Buckets of usage in words.
BUCKETS = {
    "in_text": "Input",
    "in_cached": "Cached input",
    "in_cache_write_short": "Written to the cache",
    "in_cache_write_long": "Written to the long cache",
    "in_audio": "Audio input",
    "in_audio_cached": "Cached audio input",
    "in_image": "Image input",
    "out_text": "Output",
    "out_reasoning": "Reasoning",
    "out_audio": "Audio output",
    "out_image": "Image output",
    "characters": "Characters",
    "audio_seconds_in": "Seconds of audio input",
    "audio_seconds_out": "Seconds of audio output",
    "images": "Images",
    "requests": "Request",
    "search_units": "Search units",
    "web_searches": "Web searches",
}


class Figures(Struct, frozen=True):
    """What the page shows of the history, as far as its reader may see it."""

    chart: ChartTable
    total: Sums
    tokens_in: int
    tokens_out: int
    median: int | None  # milliseconds
    models: list[str]
    calls: list[CallRow]  # one more than the page shows, if there are more
    refused: list[RefusalSum]  # of all keys


async def usage(visit: Visit, account: str) -> Reply:
    chosen = chosen_range(visit)
    figures = await _recent_figures(visit, account, chosen)
    keys = await _recent_keys(visit, account)
    known = {key.id for key in keys if visit.query("key") in ("", key.id)}
    calls, last = page_of(figures.calls, PAGE)
    values = {
        "account": account,
        "range": chosen,
        "labels": LABELS,
        "chosen": {name: visit.query(name) for name in FILTERS},
        "keep": {name: visit.query(name) for name in FILTERS},
        "keys": keys,
        "models": sorted({*visit.settings.models, *figures.models}),
        "chart": figures.chart,
        "total": figures.total,
        "tokens_in": figures.tokens_in,
        "tokens_out": figures.tokens_out,
        "times": figures.median,
        "calls": calls,
        "names": {key.id: key.name or f"…{key.last4}" for key in keys},
        "next": last.seq if last else 0,
        "is_first": not visit.query("before"),
        "refused": sum(one.requests for one in figures.refused if one.key in known),
        "moment": from_micros,
    }
    return View("usage.html", "Usage", values)


async def _recent_figures(visit: Visit, account: str, chosen: Range) -> Figures:
    """The figures; those that another reader who may see the same calls got a moment ago."""
    filters = {name: [value] for name in FILTERS if (value := visit.query(name))}
    seen = restricted(visit.actor, {"account": [account], **filters})  # Forbidden
    range_ = chosen.name or (chosen.since, chosen.until)
    question = ("usage", tuple((name, *values) for name, values in seen.items()), range_, visit.query("before"))
    return await visit.services.recent.get(question, lambda: _figures(visit, chosen, filters))


async def _recent_keys(visit: Visit, account: str) -> Sequence[KeyRecord]:
    """The keys that the reader may see, for their names; as they were a moment ago."""
    actor = visit.actor
    question = ("keys", account, actor.name, actor.may("read", account), actor.owns(account))
    return await visit.services.recent.get(question, lambda: visit.store.visible_keys.list(actor, account))


async def _figures(visit: Visit, chosen: Range, filters: dict[str, list[str]]) -> Figures:
    reports = Reports((await visit.people()).transactions)
    summary = await report(visit, reports, chosen, [chosen.period, "model"], filters)
    form = summary.total_form
    return Figures(
        chart=chart_table(summary, chosen),
        total=summary.total,
        tokens_in=form["tokens_in"],
        tokens_out=form["tokens_out"],
        median=(form["duration_ms"] or {}).get("p50"),
        models=sorted({row.labels[0] for row in summary.rows}),
        calls=await _calls(visit, chosen, limit=PAGE + 1),
        refused=await account_refusals(visit, chosen),
    )


async def usage_csv(visit: Visit, account: str) -> Reply:
    chosen = chosen_range(visit)
    if visit.error is not None:
        raise visit.error
    lists = CallLists(await visit.services.history())  # whoever else uses the console does not wait for the file
    pages = lists.pages(visit.actor, _filter(visit, chosen))
    pieces = await csv_pieces(CSV, (map(_record, calls) async for calls in pages))
    name = f"usage-{account}-{chosen.since:%Y%m%d}-{chosen.until:%Y%m%d}.csv"
    return Download(name, "text/csv; charset=utf-8", pieces)


async def show(visit: Visit, account: str, request_id: str) -> Reply:
    people = await visit.people()
    call = await CallReader(people.transactions, visit.store.store).show(visit.actor, request_id, account)
    if call.account != account:
        raise NotFound("There is no such call")
    form, key_id = call.json_form(), call.lines[-1].meta.get("key", "")
    key = await visit.store.keys.find(key_id)
    values = {
        "account": account,
        "call": form,
        "cost": form["cost"],
        "key": key,
        "buckets": BUCKETS,
        "comparison": await compare(Reports(people.transactions), visit.actor, call),
        "moment": datetime.fromisoformat(form["at"]),
    }
    return View("call.html", "Call", values)


async def _calls(visit: Visit, chosen: Range, *, limit: int) -> list[CallRow]:
    lists = CallLists((await visit.people()).transactions)
    return await lists.list(visit.actor, _filter(visit, chosen), limit=limit)


def _filter(visit: Visit, chosen: Range) -> CallFilter:
    before = visit.query("before")
    return CallFilter(
        account=visit.account,
        since=to_micros(chosen.since),
        until=to_micros(chosen.until),
        before=int(before) if before.isascii() and before.isdigit() and len(before) < 18 else 0,
        **{name: visit.query(name) for name in FILTERS},
    )


def _record(call: CallRow) -> dict[str, Any]:
    return {
        **{name: getattr(call, name) for name in CSV if hasattr(call, name)},
        "at": from_micros(call.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "key": call.key_id,
        "amount": format_amount(-call.amount),
        "uncollected": format_amount(call.uncollected),
        "tags": " ".join(f"{name}={value}" for name, value in call.tags.items()),
    }


PATH = "/accounts/{account}/usage"
ROUTES = (
    Route(method="GET", path=PATH, audience="member", function=usage, menu="Usage"),
    Route(method="GET", path="/accounts/{account}/usage.csv", audience="member", function=usage_csv),
    Route(method="GET", path=f"{PATH}/{{request_id}}", audience="member", function=show),
)
