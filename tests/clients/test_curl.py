"""curl, as the README shows it: what a person sees on a terminal."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from gateway.testing import RunningGateway
from tests.polling import ENDS_WITHIN

from .independent import SENTENCE
from .scripted import BROKEN_STREAM, ScriptedUpstream

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
PARTIAL_FILE = 18  # curl's exit code for a body that ended before its end


def curl(served: RunningGateway, path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run curl on a path under /v1 with a good key."""
    command = ["curl", "-sN", served.base_url + path, "-H", f"Authorization: Bearer {served.api_key}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN)


def body(model: str, *, stream: bool) -> list[str]:
    """Options of a chat call."""
    document = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]}
    return ["-H", "Content-Type: application/json", "-d", json.dumps(document)]


def test_streamed_chat_is_data_lines_up_to_done(served: RunningGateway) -> None:
    done = curl(served, "/chat/completions", *body("words", stream=True))
    assert done.returncode == 0, done.stderr
    frames = done.stdout.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == SENTENCE


def test_broken_stream_ends_in_an_error_and_a_failing_exit_code(
    served: RunningGateway, scripted: ScriptedUpstream
) -> None:
    scripted.enqueue(BROKEN_STREAM)
    done = curl(served, "/chat/completions", *body("scripted", stream=True))
    assert done.returncode == PARTIAL_FILE
    assert json.loads(done.stdout.strip().rpartition("data: ")[2])["error"]["code"] == "upstream_error"
    assert "[DONE]" not in done.stdout


@pytest.mark.parametrize("path", ["/models/org/m:1", "/models/org%2Fm:1", "/models/org%2Fm%3A1/"])
def test_model_with_a_slash_is_found_encoded_and_raw(served: RunningGateway, path: str) -> None:
    assert json.loads(curl(served, path, "--path-as-is").stdout)["id"] == "org/m:1"


def test_large_body_that_waits_for_a_continue_is_served(served: RunningGateway) -> None:
    """curl sends `Expect: 100-continue` before larger bodies and waits a second if nobody answers."""
    document = {"model": "words", "messages": [{"role": "user", "content": "tide " * 300_000}]}
    done = subprocess.run(
        [
            *("curl", "-sS", served.base_url + "/chat/completions", "-H", f"Authorization: Bearer {served.api_key}"),
            *("-H", "Content-Type: application/json", "-H", "Expect: 100-continue", "--data-binary", "@-"),
            *("--expect100-timeout", "20", "--max-time", "15"),
        ],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == SENTENCE
