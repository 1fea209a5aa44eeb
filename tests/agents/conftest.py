"""One gateway over the scripted model in four APIs, and an account of its own for each test."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from gateway.testing import RunningGateway, running_gateway
from tests.polling import until_blocking

from .programs import INSTALLED, Agent, Place
from .scripted_model import ModelReply, prompt
from .upstreams import ScriptedServer, Served, scripted_server

CONFIG = """
[providers.chat]
plugin = "openai"
base_url = "{address}/v1"

[providers.messages]
plugin = "anthropic"
base_url = "{address}"
api_key = "file:{key_file}"

[providers.gemini]
plugin = "gemini"
base_url = "{address}/v1beta"
api_key = "file:{key_file}"

[groups.default]
"""
MODEL = """
[models.agent-{api}]
provider = "{api}"
model = "scripted"
groups = ["default"]
context_window = 400_000
max_output_tokens = 64_000
price = {{ input = 1, cached_input = 0.1, output = 5 }}
"""
UPSTREAMS = ("chat", "messages", "gemini")  # APIs of the upstreams; each is a provider and a model
_names = itertools.count()

collect_ignore_glob = [] if os.environ.get(INSTALLED) else ["test_*.py"]  # `tox -e agents` installs the agents


@pytest.fixture(scope="session")
def upstream() -> Iterator[ScriptedServer]:
    """The scripted model."""
    with scripted_server() as server:
        yield server


@pytest.fixture(scope="session")
def served(upstream: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The gateway before it."""
    key_file = tmp_path_factory.mktemp("agents") / "key"
    key_file.write_text("upstream-key", encoding="utf-8")
    key_file.chmod(0o600)
    models = "".join(MODEL.format(api=api) for api in UPSTREAMS)
    with running_gateway(CONFIG.format(address=upstream.address, key_file=key_file) + models) as up:
        yield up


class Rig(Struct):
    """An account with a key, and what its calls became."""

    up: RunningGateway
    upstream: ScriptedServer
    account: str
    key: str
    folder: Path
    before: int  # answers of the upstream before this test

    def place(self, api: str) -> Place:
        """A home and a folder of work for an agent on the model over `api`."""
        home, work = self.folder / "home", self.folder / "work"
        for one in (home, work):
            one.mkdir(exist_ok=True)
        address = self.up.base_url.removesuffix("/v1")
        return Place(address, self.key, f"agent-{api}", home, work)

    def turn(self, agent: Agent, place: Place, *steps: tuple[str, ...], is_first: bool = True) -> None:
        """Run one turn of the agent, which must end well."""
        done = agent.run(place, prompt(*steps), is_first=is_first)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:] + "\n" + self.up.log.read_text()[-4000:]

    def answers(self) -> list[Served]:
        """What the upstream answered in this test."""
        return self.upstream.served[self.before :]

    def charges(self) -> list[dict[str, Any]]:
        """The account's ledger lines of calls, oldest first."""
        lines = json.loads(command(self.up, "usage", self.account, "--json"))
        return [line for line in lines if line["kind"] == "use"]

    def check_charges(self) -> None:
        """Each answer of the upstream was charged once, with its tokens."""
        answers = self.answers()
        until_blocking(lambda: len(self.charges()) >= len(answers))
        charged = [_tokens(line["usage"]) for line in self.charges()]
        assert sorted(charged) == sorted(_told(one.reply) for one in answers)
        command(self.up, "audit", self.account)


def _tokens(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Uncached, cached and output tokens of a ledger line."""
    assert not usage.keys() - {"in_text", "in_cached", "out_text"}, usage
    return usage.get("in_text", 0), usage.get("in_cached", 0), usage.get("out_text", 0)


def _told(reply: ModelReply) -> tuple[int, int, int]:
    """The same of an answer of the upstream."""
    return reply.tokens_in - reply.cached, reply.cached, reply.tokens_out


@pytest.fixture
def rig(served: RunningGateway, upstream: ScriptedServer, tmp_path: Path) -> Rig:
    """An account of the test's own, with money."""
    account = f"agent{next(_names)}"
    command(served, "accounts", "create", account, "--balance", "100")
    key = json.loads(command(served, "keys", "create", account, "--json"))["key"]
    return Rig(served, upstream, account, key, tmp_path, len(upstream.served))


def command(up: RunningGateway, *words: str) -> str:
    """Run `gateway …` on the configuration of the server; what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gateway", *words, "--config", str(up.config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
