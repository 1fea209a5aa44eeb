"""A gateway process over a scripted upstream that has chat completions alone, so that each other API is translated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.testing import RunningGateway, running_gateway
from tests.clients.scripted import ScriptedUpstream

CONFIG = """
[providers.scripted]
plugin = "openai"
base_url = "{address}"

[groups.default]

[models.scripted]
provider = "scripted"
price = {{ input = 1, output = 2 }}

[models.ranks]
provider = "scripted"
endpoints = ["rerank"]
price = {{ per_search_unit = 0.002 }}
"""


@pytest.fixture(scope="session")
def upstream() -> Iterator[ScriptedUpstream]:
    """The upstream for the whole run."""
    with ScriptedUpstream().serving() as server:
        yield server


@pytest.fixture
def scripted(upstream: ScriptedUpstream) -> ScriptedUpstream:
    """The upstream with an empty log and nothing enqueued."""
    upstream.forget()
    return upstream


@pytest.fixture(scope="session")
def served(upstream: ScriptedUpstream) -> Iterator[RunningGateway]:
    """The gateway."""
    with running_gateway(CONFIG.format(address=upstream.base_url)) as gateway:
        yield gateway
