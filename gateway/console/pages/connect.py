"""`/accounts/{account}/connect`: how agents, SDKs and applications are set up for this gateway."""

from __future__ import annotations

from gateway.admin.price_list import permitted_models
from gateway.console.choices import models_to_choose
from gateway.console.clients import CLIENTS, Place
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.snippets import api_url
from gateway.console.visit import Visit

PATH = "/accounts/{account}/connect"
KEY = "sk-…"  # what the page's script replaces; the typed key is not sent
NO_MODEL = "MODEL"  # of an account that may use none


async def connect(visit: Visit, account: str) -> Reply:
    record = await visit.store.accounts.show(account)
    chat = [name for name, model in permitted_models(visit.settings, record).items() if "chat" in model.endpoints]
    wanted = visit.query("model")
    offered = models_to_choose(chat, [wanted] if wanted in chat else [])
    model = wanted if wanted in chat else next(iter(offered.names), NO_MODEL)
    place = Place(api_url(visit.settings, visit.asked.host), KEY, model)
    values = {
        "account": account,
        "base": PATH.format(account=account),
        "models": offered.names,
        "has_more": offered.has_more,
        "wanted": wanted,
        "model": model,
        "place": place,
        "clients": CLIENTS,
        "key": KEY,
    }
    return View("connect.html", "Connect", values)


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="member", function=connect, help="clients#set-up", menu="Connect"),
)
