"""OpenAI's client for Node and the AI SDK, unmodified, each scene in a process of its own.

The packages are installed once into pytest's cache folder, at the versions of `node/package.json`. Without Node.js, or
where the package registry cannot be reached, these tests are skipped and say which of the two it was. Broken streams,
streamed tool calls and reasoning come from the scripted upstream, everything else from LiteLLM's proxy.
"""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.testing import Reply, RunningGateway
from gateway.testing.openai_dialect import AUDIO, PIXEL
from tests.polling import ENDS_WITHIN

from .independent import ARGUMENTS, RECORD, SENTENCE
from .scripted import (
    BROKEN_IMAGES,
    BROKEN_STREAM,
    BROKEN_TEXTS,
    SILENT_STREAM,
    TEXT_STREAM,
    TIDE_ANSWER,
    TIDE_STREAM,
    ScriptedUpstream,
    chunk,
    completion,
)

pytestmark = pytest.mark.clients

Play = Callable[[str, str], Any]


@pytest.fixture
def play(served: RunningGateway, node_folder: Path) -> Play:
    """Plays a scene of a program: what the application saw."""
    environment = {**os.environ, "OPENAI_BASE_URL": served.base_url, "OPENAI_API_KEY": served.api_key}

    def run(program: str, scene: str) -> Any:
        command = ["node", f"{program}.mjs", scene]
        done = subprocess.run(
            command, cwd=node_folder, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_openai_creates(play: Play) -> None:
    seen = play("openai", "create")
    assert (seen["text"], seen["model"]) == (SENTENCE, "words")
    assert seen["usage"]["total_tokens"] > 0
    assert seen["request_id"].startswith("req_")


def test_openai_streams(play: Play) -> None:
    seen = play("openai", "stream")
    assert (seen["text"], seen["finish"]) == (SENTENCE, ["stop"])
    assert seen["usage"]["completion_tokens"] > 0


def test_openai_helper_accumulates_tool_calls(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    assert play("openai", "helper") == [["call_1", "tide", '{"port": "Brest"}'], ["call_2", "tide", '{"port": "Cork"}']]


def test_openai_tools_round_trip(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": "Six metres."})))
    seen = play("openai", "tools")
    assert seen == {"call": {"name": "tide", "arguments": ARGUMENTS}, "text": "Six metres."}
    assert scripted.seen[0].json["messages"][-1]["tool_call_id"] == "call_tide"


def test_openai_lists_and_retrieves_models(play: Play) -> None:
    seen = play("openai", "models")
    assert {"words", "org/m:1"} <= set(seen["ids"])
    assert seen["one"] == "org/m:1"


@pytest.mark.parametrize(
    ("scene", "kind", "status", "code", "param", "message"),
    [
        ("unauthorized", "AuthenticationError", 401, "invalid_api_key", None, "Missing or invalid API key"),
        ("forbidden", "PermissionDeniedError", 403, "model_not_permitted", "model", "Model not permitted"),
        ("invalid", "BadRequestError", 400, "decimal_above_max_value", "temperature", "temperature"),
    ],
)
def test_openai_errors(
    play: Play, scene: str, kind: str, status: int, code: str, param: str | None, message: str
) -> None:
    seen = play("openai", scene)
    assert (seen["class"], seen["status"], seen["code"], seen["param"]) == (kind, status, code, param)
    assert message in seen["message"]
    assert seen["requestID"].startswith("req_")


def test_openai_broken_stream_raises_after_the_delivered_text(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    seen = play("openai", "broken")
    assert (seen["class"], seen["said"], seen["code"]) == ("APIError", "Hello", "upstream_error")


def test_openai_responses_whole_and_streamed(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": "Four."})), TIDE_STREAM)
    seen = play("openai", "responses")
    assert (seen["output_text"], seen["status"], seen["usage"]["output_tokens"]) == ("Four.", "completed", 9)
    assert seen["calls"] == [["call_1", '{"port": "Brest"}'], ["call_2", '{"port": "Cork"}']]


def test_openai_broken_response_never_completes(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    seen = play("openai", "broken_responses")
    assert seen["types"][-1] == "response.failed"
    assert "response.completed" not in seen["types"]
    assert seen["class"]


def test_openai_closing_a_stream_cancels_the_upstream(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(SILENT_STREAM)
    assert play("openai", "leave") == "left"
    assert scripted.ended().outcome == "left"


def test_ai_sdk_generates_and_streams(play: Play) -> None:
    for scene in ("create", "stream"):
        seen = play("ai_sdk", scene)
        assert (seen["text"], seen["finishReason"]) == (SENTENCE, "stop")
        assert seen["usage"]["outputTokens"] > 0
        assert not seen.get("errors")


def test_ai_sdk_runs_a_tool_and_continues(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(TIDE_ANSWER), Reply.json(completion({"content": "Six metres."})))
    assert play("ai_sdk", "tools") == {"text": "Six metres.", "calls": [["tide", {"port": "Brest"}]]}
    assert scripted.seen[1].json["messages"][-1]["content"] == "6 metres at Brest"


def test_ai_sdk_runs_streamed_tools_and_continues(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM, TEXT_STREAM)
    calls = [["tide", {"port": "Brest"}], ["tide", {"port": "Cork"}]]
    assert play("ai_sdk", "streamed_tools") == {"text": "Hello", "errors": [], "calls": calls}


def test_ai_sdk_generates_an_object(play: Play) -> None:
    assert play("ai_sdk", "object") == json.loads(RECORD)


def test_ai_sdk_separates_reasoning_from_text(play: Play, scripted: ScriptedUpstream) -> None:
    chunks = [chunk({"reasoning": "Two and two."}), chunk({"content": "Four"}), chunk(finish="stop")]
    scripted.enqueue(Reply.stream(chunks))
    assert play("ai_sdk", "reasoning") == {"text": "Four", "reasoning": "Two and two."}


def test_ai_sdk_errors(play: Play) -> None:
    seen = play("ai_sdk", "unauthorized")
    assert (seen["status"], seen["message"], seen["retryable"]) == (401, "Missing or invalid API key", False)
    seen = play("ai_sdk", "forbidden")
    assert (seen["status"], seen["message"], seen["retryable"]) == (403, "Model not permitted", False)


def test_ai_sdk_broken_stream_reports_an_error(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    seen = play("ai_sdk", "broken")
    assert seen["text"] == "Hello"
    assert seen["errors"] == ["The model provider failed to answer"]
    assert seen["thrown"]  # the connection is cut behind the frame, so that nobody takes the answer for whole


def test_openai_completes_texts(play: Play, scripted: ScriptedUpstream) -> None:
    seen = play("openai", "completions")
    assert seen["id"].startswith("cmpl-") and seen["request_id"].startswith("req_")
    assert [choice["text"] for choice in seen["choices"]] == ["one two ", "one two ", "three ", "three "]
    assert seen["choices"][0]["logprobs"]["tokens"] == ["one ", "two "]
    assert seen["streamed"] == {"0": "one two ", "1": "one two ", "2": "three ", "3": "three "}
    assert (seen["usage"]["prompt_tokens"], seen["usage"]["completion_tokens"]) == (3, 6)
    assert seen["chat"] == "Hello "
    assert (seen["refused"]["status"], seen["refused"]["param"]) == (400, "echo")


def test_openai_notices_a_cut_stream_of_texts(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.stream(BROKEN_TEXTS, done=False))
    seen = play("openai", "broken_completions")
    assert (seen["said"], seen["code"]) == ("High tide at six", "upstream_stream_truncated")


def test_openai_translates(play: Play, scripted: ScriptedUpstream) -> None:
    seen = play("openai", "translations")
    assert seen["plain"] == {"text": "I heard 2000 bytes"}
    assert (seen["verbose"]["task"], seen["verbose"]["language"]) == ("translate", "english")
    assert [segment["id"] for segment in seen["verbose"]["segments"]] == [0, 1]
    assert seen["text"].startswith("WEBVTT")
    assert {one.path for one in scripted.seen} == {"/v1/audio/translations"}


def test_openai_moderates_without_a_model(play: Play) -> None:
    seen = play("openai", "moderations")
    assert (seen["id"][:5], seen["model"], seen["flagged"]) == ("modr-", "judge", [[False, False], [True, False]])


def test_openai_edits_images(play: Play, scripted: ScriptedUpstream) -> None:
    seen = play("openai", "edits")
    assert seen["images"] == [PIXEL, PIXEL]
    assert seen["types"] == ["image_edit.partial_image", "image_edit.completed"]
    assert scripted.seen[0].body.count(b64decode(PIXEL)) == 3


def test_openai_reads_base64_vectors(play: Play, scripted: ScriptedUpstream) -> None:
    seen = play("openai", "embed")
    assert [len(vector) for vector in seen["vectors"]] == [4, 4]
    assert seen["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert scripted.seen[0].json["encoding_format"] == "base64"


def test_openai_reads_images_and_their_stream(play: Play) -> None:
    assert play("openai", "images") == [PIXEL, PIXEL]
    preview, finished = "image_generation.partial_image", "image_generation.completed"
    assert play("openai", "image_stream") == [preview, preview, finished]


def test_openai_raises_for_a_stream_that_lacks_an_image(play: Play, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_IMAGES)
    seen = play("openai", "broken_images")
    assert (seen["class"], seen["code"]) == ("APIError", "upstream_stream_truncated")


def test_ai_sdk_gets_vectors_and_images(play: Play) -> None:
    seen = play("ai_sdk", "embed")
    assert [len(vector) for vector in seen["embeddings"]] == [4, 4]
    assert seen["usage"]["tokens"] == 3
    images = play("ai_sdk", "images")
    assert images == [{"base64": PIXEL, "mediaType": "image/png"}] * 2


def test_ai_sdk_synthesizes_and_transcribes(play: Play) -> None:
    assert play("ai_sdk", "speech") == {"length": len(AUDIO["mp3"]), "mediaType": "audio/mpeg"}
    heard = play("ai_sdk", "transcript")
    assert heard["text"] == "I heard 412 bytes"


def test_openai_runs_a_batch(play: Play) -> None:
    assert play("openai", "batches") == {
        "lifetime": 3600,
        "counts": {"total": 2, "completed": 2, "failed": 0},
        "ids": ["a", "b"],
        "listed": True,
        "listed_batch": True,
        "deleted": True,
    }
