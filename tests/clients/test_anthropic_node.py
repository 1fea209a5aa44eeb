"""Anthropic's client for Node, unmodified, each scene in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.testing import RunningGateway
from tests.polling import ENDS_WITHIN

from .scripted import BROKEN_STREAM, TEXT_STREAM, TIDE_STREAM, ScriptedUpstream

pytestmark = pytest.mark.clients


@pytest.fixture
def play(dialects: RunningGateway, node_folder: Path) -> Callable[[str], Any]:
    """Plays a scene: what the application saw."""
    address = dialects.base_url.removesuffix("/v1")
    environment = {**os.environ, "ANTHROPIC_BASE_URL": address, "GATEWAY_KEY": dialects.api_key}

    def run(scene: str) -> Any:
        command = ["node", "anthropic.mjs", scene]
        done = subprocess.run(
            command, cwd=node_folder, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_creates_over_both_upstreams(play: Callable[[str], Any], scripted: ScriptedUpstream) -> None:
    for answer in play("create"):
        assert (answer["types"], answer["stop"]) == (["text"], "end_turn")
        assert answer["usage"]["output_tokens"] > 0


def test_streams_over_both_upstreams(play: Callable[[str], Any], scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TEXT_STREAM)
    assert play("stream") == [["Hello", "end_turn"], ["Hello", "end_turn"]]


def test_helper_accumulates_parallel_tool_calls(play: Callable[[str], Any], scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    assert play("tools") == [["call_1", {"port": "Brest"}], ["call_2", {"port": "Cork"}]]


def test_refusals_are_typed_errors(play: Callable[[str], Any]) -> None:
    seen = play("unauthorized")
    assert (seen["class"], seen["status"], seen["kind"]) == ("AuthenticationError", 401, "authentication_error")
    seen = play("forbidden")
    assert (seen["class"], seen["status"], seen["kind"]) == ("PermissionDeniedError", 403, "permission_error")


def test_broken_stream_is_an_error(play: Callable[[str], Any], scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    seen = play("broken")
    assert seen["said"] == "Hello"
    assert seen["class"] is not None


def test_tokens_are_counted(play: Callable[[str], Any]) -> None:
    assert play("count") > 0
