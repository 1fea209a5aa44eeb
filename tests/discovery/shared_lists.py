"""Lists as a worker has written them, for what only reads them."""

from __future__ import annotations

import time

from gateway.config.settings import Settings
from gateway.discovery.checked_lists import checked_list
from gateway.discovery.discovered import Discovered, KnownList, discovered
from gateway.discovery.stored_lists import NO_LIST, ListState, list_id, write_list
from gateway.plugins.model_list import ListedModel
from gateway.store import Store

PROVIDER = "router"
LISTED = (
    ListedModel(name="acme/large", price={"input": "1.5", "output": "6"}, context_window=64_000),
    ListedModel(name="acme/free", price={"input": 0, "output": 0}),
    ListedModel(name="acme/unpriced"),
    ListedModel(name="<script>alert(1)</script>"),
)
#: A provider that lists its models, and a pattern for them.
MODELS = """
[providers.fake]
plugin = "fake"

[providers.router]
plugin = "openai"
base_url = "http://127.0.0.1:9/v1"
discover = true

[models.fake-chat]
provider = "fake"
price = { input = 1, output = 2.5 }

[models."router/*"]
provider = "router"
price = "upstream"
"""


def known_lists(settings: Settings) -> dict[str, KnownList]:
    """The list of the provider."""
    now = time.time()
    checked = checked_list(LISTED, NO_LIST, now=now, max_change=10.0, keep=86_400.0)
    state = ListState(version="1", at=now, listed=len(checked.found.models), left_out=checked.left_out)
    return {list_id(PROVIDER, settings.providers[PROVIDER]): KnownList(state, checked.found)}


def found_in(settings: Settings) -> Discovered:
    """The settings with the models of the list."""
    return discovered(settings, known_lists(settings), time.time())


async def write_lists(store: Store, settings: Settings) -> None:
    """What a worker writes."""
    for name, known in known_lists(settings).items():
        await write_list(store, name, known.found, known.state, keep=86_400.0)
