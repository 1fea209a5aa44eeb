"""The README's blocks run: what a newcomer copies works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.pepper import load_pepper
from gateway.config.loader import DEMO, parse
from gateway.testing import RunningGateway, check_provider, running_gateway
from tests.polling import ENDS_WITHIN

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The README's blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def demo() -> Iterator[RunningGateway]:
    """A gateway that serves the demo's models."""
    with running_gateway(DEMO) as gateway:
        yield gateway


@pytest.fixture
def environment(demo: RunningGateway) -> dict[str, str]:
    """What the README tells to export."""
    return {**os.environ, "OPENAI_API_KEY": demo.api_key, "OPENAI_BASE_URL": demo.base_url}


@pytest.mark.slow
def test_curl_block_answers_a_streamed_chat(environment: dict[str, str]) -> None:
    (block,) = [block for block in blocks("sh") if block.startswith("curl")]
    done = subprocess.run(["bash", "-c", block], env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("data: [DONE]\n\n")


@pytest.mark.slow
def test_sdk_block_answers_streams_and_lists(environment: dict[str, str]) -> None:
    (block,) = [block for block in blocks("python") if "OpenAI" in block]
    done = subprocess.run(
        [sys.executable, "-c", block], env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Hello") == 2
    assert "2 7\n" in done.stdout  # two vectors of seven words
    assert "1024x1024 " in done.stdout
    assert "'fake-chat', 'fake-embedding', 'fake-image'" in done.stdout


def test_configuration_block_is_a_configuration() -> None:
    (block,) = blocks("toml")
    settings = parse(tomllib.loads(block, parse_float=str))
    assert settings.models["gpt-5-mini"].price is not None


@pytest.mark.holds("README.md#write-a-provider-1")
def test_provider_block_is_a_provider_of_thirty_lines() -> None:
    (block,) = [block for block in blocks("python") if "Provider" in block]
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), names)
    check_provider(names["ShoutProvider"], options={"delay": 0.0})
    code = block[block.index("class ShoutProvider") :]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30


@pytest.mark.slow
def test_operator_commands_run_as_written(tmp_path: Path) -> None:
    (config,) = blocks("toml")
    (tmp_path / "gateway.toml").write_text(config, encoding="utf-8")
    (block,) = [block for block in blocks("sh") if block.startswith("gateway check")]
    commands = "\n".join(line for line in block.splitlines() if not line.startswith("gateway serve"))
    load_pepper(tmp_path / "var")  # `gateway serve` creates it
    script = f'set -e\ngateway() {{ "{sys.executable}" -m gateway "$@"; }}\n{commands}'
    environment = {**os.environ, "OPENAI_UPSTREAM_KEY": "sk-not-used"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sk-\S{40,}$", done.stdout, re.MULTILINE)


def test_first_two_commands_are_the_documented_ones() -> None:
    run, test = (block for block in blocks("sh") if block.startswith("python3 -m venv"))
    assert run == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/gateway serve --demo\n"
    assert test == "python3 -m venv .venv && .venv/bin/pip install tox && .venv/bin/tox\n"


def test_page_is_short() -> None:
    assert len(README.encode()) <= 9_000


def test_every_linked_file_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
