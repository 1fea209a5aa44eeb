"""`/accounts/{account}/usage`: spend over time, the list of calls, and the cost breakdown of each call."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from msgspec import structs

from gateway.admin.key_lookups import key_names
from gateway.admin.pages import page_of
from gateway.admin.price_list import permitted_models
from gateway.admin.rights import creates_keys, reads_keys
from gateway.admin.times import from_micros, to_micros
from gateway.amounts import format_amount
from gateway.attention.provider_rules import provider_page
from gateway.console.call_order import CallOrder, chosen_order, is_ranked, place_in
from gateway.console.choices import MOST_KEYS, MOST_MEMBERS, keys_to_choose, members_to_choose, sees_all
from gateway.console.fields import whole_number
from gateway.console.outcomes import outcome_text
from gateway.console.pages.overview import report, report_by_model
from gateway.console.ranges import LABELS, Range, chosen_range
from gateway.console.refused_requests import count_of_refused
from gateway.console.rendering import render
from gateway.console.replies import PAGE, Download, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.usage_chart import chart_table
from gateway.console.visit import Visit
from gateway.errors import NotFound
from gateway.history.call_pages import CallFilter, CallRow
from gateway.history.call_search import CallSearch
from gateway.reports.call_details import CallReader
from gateway.reports.call_lists import CallLists
from gateway.reports.csv_file import csv_pieces
from gateway.reports.reports import Reports, restricted
from gateway.reports.unexpected_cost import compare
from gateway.reports.usage_report import Report
from gateway.web.request_limits import SEARCHES
from gateway.web.work_threads import PAGES

FILTERS = ("key", "model", "outcome", "user", "session")
LONGEST_ID = 256
CSV = (
    "at", "request_id", "key", "model", "served_model", "provider", "endpoint", "outcome", "tokens_in", "tokens_out",
    "amount", "uncollected", "estimated", "attempts", "duration_ms", "first_token_ms", "tags", "session",
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
    if wanted := visit.query("request").strip()[:LONGEST_ID]:
        return Redirect(f"{PATH.format(account=account)}/{quote(wanted, safe='')}")
    chosen, order = chosen_range(visit), chosen_order(visit)
    filters = {name: [value] for name in FILTERS if (value := visit.query(name))}
    seen = restricted(visit.actor, {"account": [account], **filters})  # Forbidden
    # Everything that the main part depends on: readers who see the same calls and keys share it.
    question = (
        "usage",
        tuple((name, *values) for name, values in seen.items()),
        "" if reads_keys(visit.actor, account) else visit.actor.name,
        creates_keys(visit.actor, account),
        chosen.name or (chosen.since, chosen.until),
        tuple(visit.query(name) for name in (*FILTERS, "before")),
        tuple(place_in(visit)),
    )
    if is_ranked(visit):  # it ends with its browser, and its place is free when it ends
        main = await _main(visit, account, chosen, order, filters)
    else:
        main = await visit.services.recent.get(question, lambda: _main(visit, account, chosen, order, filters))
    return View("usage.html", "Usage", {"main": main})


async def _main(visit: Visit, account: str, chosen: Range, order: CallOrder, filters: dict[str, list[str]]) -> bytes:
    """The HTML of all that is not of this visit: half of a page's time is spent on its rows."""
    wanted = {name: visit.query(name) for name in FILTERS}
    summary, outcomes = await _summary(visit, chosen, filters)
    keys = await keys_to_choose(visit, account, wanted["key"])
    listed = await _calls(visit, chosen, order)
    form = await PAGES.run(lambda: summary.total_form)  # of many rows it takes long
    values = {
        "account": account,
        "path": PATH.format(account=account),
        "longest_id": LONGEST_ID,
        "range": chosen,
        "labels": LABELS,
        "chosen": wanted,
        "keep": {**wanted, **order.texts},
        "order": order.texts,
        "keys": keys,
        "most_keys": MOST_KEYS,
        "most_members": MOST_MEMBERS,
        "may_create": creates_keys(visit.actor, account),
        "members": await _members(visit, account, wanted["user"]),
        "outcomes": sorted({*outcomes, wanted["outcome"]} - {""}),
        "outcome_text": outcome_text,
        "models": await _models(visit, account, summary),
        "chart": await PAGES.run(chart_table, summary),
        "total": summary.total,
        "tokens_in": form["tokens_in"],
        "tokens_out": form["tokens_out"],
        "times": (form["duration_ms"] or {}).get("p50"),
        **listed,
        "names": await key_names(visit.store.store, sorted({call.key_id for call in listed["calls"]} - {""})),
        "is_first": not any(visit.query(name) for name in ("before", "behind", "older")),
        "refused": await _refused(visit, chosen, wanted),
        "moment": from_micros,
    }
    return render("_usage.html", visit.settings, values)


async def _summary(visit: Visit, chosen: Range, filters: dict[str, list[str]]) -> tuple[Report, set[str]]:
    """The sums by period and model, and the outcomes that there are without the filter of outcomes."""
    others = {name: values for name, values in filters.items() if name != "outcome"}
    reports = Reports((await visit.people()).transactions)
    by_outcome = await report(visit, reports, chosen, ["outcome"], others)
    outcomes = {row.labels[0] for row in by_outcome.rows if row.sums["calls"]}
    return await report_by_model(visit, reports, chosen, filters), outcomes


async def _models(visit: Visit, account: str, summary: Report) -> list[str]:
    """The models that the account may use, and those that were used: names of other ones are of other groups."""
    permitted = permitted_models(visit.settings, await visit.store.accounts.show(account))
    return sorted({*permitted, *(row.labels[0] for row in summary.rows)})


async def _members(visit: Visit, account: str, chosen: str) -> dict[str, str]:
    """The members by id, to filter by, for whoever sees the calls of all; `chosen` may be a former one."""
    found = await members_to_choose(visit, account, chosen)
    names = {user.id: f"{user.name} ({user.email})" if user.name else user.email for user in found}
    is_former = chosen and chosen not in names and sees_all(visit, account)
    return {**names, chosen: f"former member {chosen}"} if is_former else names


async def _refused(visit: Visit, chosen: Range, wanted: dict[str, str]) -> int:
    """How many requests that fit were refused. A request that did not run has no outcome and no session."""
    if wanted["outcome"] or wanted["session"]:
        return 0
    return await count_of_refused(visit, chosen, key=wanted["key"], user=wanted["user"], model=wanted["model"])


async def usage_csv(visit: Visit, account: str) -> Reply:
    chosen = chosen_range(visit)
    lists = CallLists(await visit.services.history())  # whoever else uses the console does not wait for the file
    order = chosen_order(visit)
    if visit.error is not None:
        raise visit.error
    wanted = structs.replace(_filter(visit, chosen), least_cost=order.least_cost, least_duration=order.least_duration)
    pages = lists.pages(visit.actor, wanted)
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
        "sees_site": visit.actor.may("read"),
        "page_of": provider_page,
        "comparison": await compare(Reports(people.transactions), visit.actor, call),
        "moment": datetime.fromisoformat(form["at"]),
    }
    return View("call.html", "Call", values)


async def _calls(visit: Visit, chosen: Range, order: CallOrder) -> dict[str, Any]:
    """What the list of the page needs: its calls, the parameters of the next page, and what was searched."""
    wanted = _filter(visit, chosen)
    filters = {name: getattr(wanted, name) for name in ("account", "since", "until", *FILTERS)}
    search = order.search(CallSearch(**filters))
    if not search.is_ranked:
        lists = CallLists((await visit.people()).transactions)
        calls, last = page_of(await lists.list(visit.actor, wanted, limit=PAGE + 1), PAGE)
        return {"calls": calls, "next": {"before": last.seq} if last else {}, "searched_since": None}
    lists = CallLists(await visit.services.history())  # beside the pages: it reads many lines
    found = await lists.ranked(visit.actor, search, limit=PAGE + 1)
    shown, end = page_of(found.calls, PAGE)
    return {
        "calls": [one.call for one in shown],
        "next": order.next(end),
        "searched_since": from_micros(found.since) if found.since > search.since and end is None else None,
        "searched_until": found.since,
    }


def _filter(visit: Visit, chosen: Range) -> CallFilter:
    filters: dict[str, Any] = {name: visit.query(name) for name in FILTERS}
    return CallFilter(
        account=visit.account,
        since=to_micros(chosen.since),
        until=to_micros(chosen.until),
        before=whole_number(visit.query("before")) or 0,
        **filters,
    )


#: The columns of the file that are the call's own.
_PLAIN = tuple(
    name for name in CSV if name in CallRow.__struct_fields__ and name not in ("at", "amount", "uncollected", "tags")
)
_plain_values = attrgetter(*_PLAIN)


def _plain_cells(call: CallRow) -> dict[str, Any]:
    return dict(zip(_PLAIN, _plain_values(call), strict=True))


def _record(call: CallRow) -> dict[str, Any]:
    return _plain_cells(call) | {
        "at": from_micros(call.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "key": call.key_id,
        "amount": format_amount(-call.amount),
        "uncollected": format_amount(call.uncollected),
        "tags": " ".join(f"{name}={value}" for name, value in call.tags.items()),
    }


PATH = "/accounts/{account}/usage"
ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="member",
        function=usage,
        help="console#usage-and-overview",
        menu="Usage",
        waits_if=is_ranked,
        limit=SEARCHES,
    ),
    PageRoute(method="GET", path=f"{PATH}.csv", audience="member", function=usage_csv, waits=True),
    PageRoute(
        method="GET", path=f"{PATH}/{{request_id}}", audience="member", function=show, help="console#the-page-of-a-call"
    ),
)
