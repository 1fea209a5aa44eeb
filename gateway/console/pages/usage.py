"""`/accounts/{account}/usage`: spend over time, the list of calls, and the cost breakdown of each call."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gateway.admin.call_details import CallReader
from gateway.admin.call_lists import CallLists
from gateway.admin.csv_file import csv_pieces
from gateway.admin.pages import page_of
from gateway.admin.reports import Reports, restricted
from gateway.admin.times import from_micros, to_micros
from gateway.admin.unexpected_cost import compare
from gateway.admin.visible_keys import VisibleKeys
from gateway.amounts import format_amount
from gateway.console.pages.overview import account_refusals, report
from gateway.console.ranges import LABELS, Range, chosen_range
from gateway.console.rendering import render
from gateway.console.replies import PAGE, Download, Reply, View
from gateway.console.route import Route
from gateway.console.usage_chart import chart_table
from gateway.console.visit import Visit
from gateway.errors import NotFound
from gateway.history.call_pages import CallFilter, CallRow

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
#: The colour of what an attempt answered; that of an error is `bad`.
TONES = {"ok": "good", "cancelled": "", "client_closed": "warn"}


async def usage(visit: Visit, account: str) -> Reply:
    chosen = chosen_range(visit)
    filters = {name: [value] for name in FILTERS if (value := visit.query(name))}
    seen = restricted(visit.actor, {"account": [account], **filters})  # Forbidden
    # Everything that the main part depends on: readers who see the same calls and keys share it.
    question = (
        "usage",
        tuple((name, *values) for name, values in seen.items()),
        VisibleKeys.reader(visit.actor, account),
        chosen.name or (chosen.since, chosen.until),
        tuple(visit.query(name) for name in (*FILTERS, "before")),
    )
    main = await visit.services.recent.get(question, lambda: _main(visit, account, chosen, filters))
    return View("usage.html", "Usage", {"main": main})


async def _main(visit: Visit, account: str, chosen: Range, filters: dict[str, list[str]]) -> bytes:
    """The HTML of all that is not of this visit: half of a page's time is spent on its rows."""
    summary = await report(
        visit, Reports((await visit.people()).transactions), chosen, [chosen.period, "model"], filters
    )
    keys = await visit.store.visible_keys.list(visit.actor, account)
    known = {key.id for key in keys if visit.query("key") in ("", key.id)}
    refused = await account_refusals(visit, chosen)
    calls, last = page_of(await _calls(visit, chosen, limit=PAGE + 1), PAGE)
    form = summary.total_form
    wanted = {name: visit.query(name) for name in FILTERS}
    values = {
        "account": account,
        "path": PATH.format(account=account),
        "range": chosen,
        "labels": LABELS,
        "chosen": wanted,
        "keep": wanted,
        "keys": keys,
        "models": sorted({*visit.settings.models, *(row.labels[0] for row in summary.rows)}),
        "chart": chart_table(summary, chosen),
        "total": summary.total,
        "tokens_in": form["tokens_in"],
        "tokens_out": form["tokens_out"],
        "times": (form["duration_ms"] or {}).get("p50"),
        "calls": calls,
        "names": {key.id: key.name or f"…{key.last4}" for key in keys},
        "next": last.seq if last else 0,
        "is_first": not visit.query("before"),
        "refused": sum(one.requests for one in refused if one.key in known),
        "moment": from_micros,
    }
    return render("_usage.html", visit.settings, values)


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
        "tones": TONES,
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
