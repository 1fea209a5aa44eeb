"""`/accounts/{account}/playground`: chat with the permitted models, streamed; the calls are the account's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import msgspec

from gateway.admin.price_list import permitted_models, price_list
from gateway.config.settings import Settings
from gateway.console.choices import models_to_choose
from gateway.console.playground_runs import Run, run_lines
from gateway.console.replies import Document, Reply, Stream, View
from gateway.console.route import PageRoute
from gateway.console.snippets import api_url
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound
from gateway.http_server.tls_pair import own_context
from gateway.reports.call_details import CallDetails, CallReader

PATH = "/accounts/{account}/playground"
SETTLED_WITHIN = 10.0  # seconds; a call that was stopped may still be read from its upstream
LOOK_EVERY = 0.2  # seconds
MOST_SIDES = 4
#: What is billed of a call that is stopped, by the model's `disconnect`.
POLICIES = {
    "auto": "Stop bills what was delivered; an answer that may reason unseen is read to its end",
    "delivered": "Stop bills what was delivered",
    "drain": "a stopped answer is read to its end, and billed whole",
    "void": "a stopped answer costs nothing",
}

_run = msgspec.json.Decoder(Run)


async def show(visit: Visit, account: str) -> Reply:
    record = await visit.store.accounts.show(account)
    permitted = permitted_models(visit.settings, record)
    chat = [name for name, model in permitted.items() if "chat" in model.endpoints]
    wanted = visit.query("model")
    offered = models_to_choose(chat, [wanted] if wanted in chat else [])
    models = [
        {
            "id": one["id"],
            "price": one["price"],
            "policy": POLICIES[visit.settings.models[one["id"]].disconnect],
        }
        for one in price_list(visit.settings, record, {name: permitted[name] for name in offered.names})
    ]
    values = {
        "account": account,
        "models": models,
        "may_call": account in visit.actor.memberships,
        "wanted": wanted,
        "has_more": offered.has_more,
        "api_url": api_url(visit.settings, visit.asked.host),
        "most_sides": MOST_SIDES,
    }
    return View("playground.html", "Playground", values)


async def run(visit: Visit, account: str) -> Reply:
    try:
        wanted = _run.decode(visit.raw("run"))
    except msgspec.MsgspecError as error:
        raise InvalidValue(f"This is no call: {error}", param="run") from None
    key = await (await visit.people()).playground_keys.text(visit.actor, account)
    tls = visit.services.tls
    own = await asyncio.to_thread(own_context, tls.pair) if tls is not None else None
    return Stream(run_lines(_own_url(visit.settings), key, wanted, tls=own))


async def cost(visit: Visit, account: str, request_id: str) -> Reply:
    """What the ledger says of a call that has ended; it waits until the call is settled."""
    people = await visit.people()
    reader = CallReader(people.transactions, visit.store.store)
    deadline = asyncio.get_running_loop().time() + SETTLED_WITHIN
    while True:
        try:
            call = await reader.show(visit.actor, request_id, account)
        except NotFound:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(LOOK_EVERY)
        else:
            return Document(msgspec.json.encode(_cost_form(call)))


def _cost_form(call: CallDetails) -> dict[str, Any]:
    form, usage = call.json_form(), call.lines[-1].json_form()["usage"]
    return {
        "cost": form["amount"],
        "tokens_in": sum(value for name, value in usage.items() if name.startswith("in_")),
        "tokens_out": sum(value for name, value in usage.items() if name.startswith("out_")),
        "duration_ms": form["duration_ms"],
        "first_token_ms": form["first_token_ms"],
        "estimated": form["estimated"],
        "outcome": form["outcome"],
        "served_model": form["served_model"],
    }


def _own_url(settings: Settings) -> str:
    """The address of `/v1` on this machine."""
    host = settings.server.host
    with suppress(ValueError):  # of a name
        if (address := ip_address(host)).is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    return f"{settings.server.scheme}://{f'[{host}]' if ':' in host else host}:{settings.server.port}/v1"


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="member", function=show, help="console#playground", menu="Playground"),
    PageRoute(method="POST", path=PATH, audience="member", function=run, always=True),
    PageRoute(method="GET", path=f"{PATH}/calls/{{request_id}}", audience="member", function=cost, waits=True),
)
