"""One real gateway process for all clients, over an independent upstream and a scripted one.

`served` has the address and a key; `poor_key` belongs to an account without money, `modest_key` to one whose calls
get a lower output limit. Models on LiteLLM: words, record, tide, limited, broken, window and org/m:1. Models on the
scripted upstream: scripted, native (with the Responses API), texts (with completions), vectors, pictures, judge, talks,
ranks, voice, scribe, and closed, whose group nobody is in. Sharp edge: all tests share the gateway, so what one leaves
enqueued the next would get.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.testing import RunningGateway, background_upstream, running_gateway
from tests.polling import ENDS_WITHIN
from tests.providers.messages_dialect import messages_chat

from .independent import KEY, installed, proxy
from .node_packages import folder_with_packages
from .scripted import ScriptedUpstream

CONFIG = """
[providers.independent]
plugin = "openai"
base_url = "{independent}"
api_key = "file:{key_file}"

[providers.scripted]
plugin = "openai"
base_url = "{scripted}"
forward_params = ["top_k"]

[providers.native]
plugin = "openai"
base_url = "{scripted}"
responses = true

[providers.texts]
plugin = "openai"
base_url = "{scripted}"
completions = true

[groups.default]
[groups.nobody]

[batches]
enabled = true
"""
MODEL = """
[models."{name}"]
provider = "{provider}"
model = "{model}"
groups = ["{group}"]
price = {{ input = 1, output = 2 }}
"""
OTHERS = """
[models.vectors]
provider = "scripted"
endpoints = ["embeddings"]
price = { input = 1 }

[models.pictures]
provider = "scripted"
endpoints = ["images"]
price = { per_image = { "*" = 0.001 } }

[models.judge]
provider = "scripted"
aliases = ["omni-moderation-latest"]
endpoints = ["moderation"]

[models.talks]
provider = "scripted"
endpoints = ["realtime"]
price = { input = 4, output = 16, audio_input = 32, audio_output = 64 }

[models.ranks]
provider = "scripted"
endpoints = ["rerank"]
price = { per_search_unit = 0.002 }

[models.voice]
provider = "scripted"
endpoints = ["speech"]
price = { per_character = 15 }

[models.scribe]
provider = "scripted"
endpoints = ["transcription"]
price = { per_second_in = 0.0001 }
"""


def models() -> str:
    """The models' part of the configuration."""
    words = ("words", "record", "tide", "limited", "broken", "window")
    rows = [(name, "independent", f"up-{name}", "default") for name in words]
    rows += [
        ("org/m:1", "independent", "up-words", "default"),
        ("scripted", "scripted", "up-scripted", "default"),
        ("closed", "scripted", "up-closed", "nobody"),
        ("native", "native", "up-native", "default"),
        ("texts", "texts", "up-texts", "default"),
    ]
    return (
        "".join(
            MODEL.format(name=name, provider=provider, model=model, group=group)
            for name, provider, model, group in rows
        )
        + OTHERS
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that may be the first, which installs packages, the time that this takes."""
    for item in items:
        if {"independent", "node_folder"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def independent(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of LiteLLM's proxy."""
    program = installed(pytestconfig.cache.mkdir("litellm"))
    with proxy(program, tmp_path_factory.mktemp("litellm")) as address:
        yield address


@pytest.fixture(scope="session")
def scripted_server() -> Iterator[ScriptedUpstream]:
    """The scripted upstream for the whole run."""
    with ScriptedUpstream().serving() as upstream:
        yield upstream


@pytest.fixture
def scripted(scripted_server: ScriptedUpstream) -> ScriptedUpstream:
    """The scripted upstream with an empty log and nothing enqueued."""
    scripted_server.forget()
    return scripted_server


@pytest.fixture(scope="session")
def served(
    independent: str, scripted_server: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """The gateway; two workers, as it would be run."""
    key_file = tmp_path_factory.mktemp("secret") / "key"
    key_file.write_text(KEY)
    config = CONFIG.format(independent=independent, scripted=scripted_server.base_url, key_file=key_file)
    with running_gateway(config + models(), workers=2) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def poor_key(served: RunningGateway) -> str:
    """A key whose account cannot pay for anything."""
    _gateway(served, "accounts", "create", "poor", "--balance", "0.000000001")
    return _gateway(served, "keys", "create", "poor").strip()


@pytest.fixture(scope="session")
def modest_key(served: RunningGateway) -> str:
    """A key whose account cannot pay for the longest answer, so that output limits are lowered."""
    _gateway(served, "accounts", "create", "modest", "--balance", "0.05")  # the longest answer costs 0.066
    return _gateway(served, "keys", "create", "modest").strip()


def _gateway(served: RunningGateway, *words: str) -> str:
    command = [sys.executable, "-m", "gateway", *words, "--config", str(served.config)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=ENDS_WITHIN).stdout


DIALECTS = """
[providers.scripted]
plugin = "openai"
base_url = "{scripted}"

[providers.vendor]
plugin = "anthropic"
base_url = "{vendor}"

[groups.default]
[groups.nobody]

[models.translated]
provider = "scripted"
model = "up-scripted"
price = {{ input = 1, output = 2 }}
retries = 0

[models.native]
provider = "vendor"
model = "claude-sonnet-5"
price = {{ input = 1, output = 2 }}

[models.closed]
provider = "scripted"
groups = ["nobody"]
price = {{ input = 1, output = 2 }}
"""


@pytest.fixture(scope="session")
def node_folder(pytestconfig: pytest.Config) -> Path:
    """The scenes for Node.js beside their installed packages."""
    return folder_with_packages(pytestconfig)


@pytest.fixture(scope="session")
def dialects(scripted_server: ScriptedUpstream) -> Iterator[RunningGateway]:
    """A gateway over the scripted upstream and one of Anthropic's dialect."""
    with background_upstream(messages_chat) as vendor:
        config = DIALECTS.format(scripted=scripted_server.base_url, vendor=vendor)
        with running_gateway(config, workers=1) as gateway:
            yield gateway


@pytest.fixture(scope="session")
def dialects_poor_key(dialects: RunningGateway) -> str:
    """A key of it whose account cannot pay for anything."""
    _gateway(dialects, "accounts", "create", "poor", "--balance", "0.000000001")
    return _gateway(dialects, "keys", "create", "poor").strip()
