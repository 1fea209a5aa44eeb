"""`python -m gateway.testing conformance`: the gateway holds the standards over upstreams of three dialects."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from gateway.config.settings import Settings, WebSocketSettings
from gateway.testing import FakeUpstream, Reply, Seen
from gateway.testing.__main__ import commands
from gateway.testing.servers.client import Server, Unreachable
from gateway.testing.servers.report import line, summary
from gateway.testing.servers.run import Outcome, check_server
from gateway.testing.servers.situations import ASK, IMAGE, SITUATIONS, TOOL, USUAL, Situation
from tests.api.conftest import Client
from tests.testing.test_standards import RESPONSE

from .answers import Answer, Call, reply

CHECKED = [one for one in SITUATIONS if one.api in USUAL]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The same with WebSocket switched on."""
    websocket = WebSocketSettings(responses=True, max_per_account=8, max_per_address=9)
    return structs.replace(settings, server=structs.replace(settings.server, websocket=websocket))


def modelled(seen: Seen) -> Reply:
    """A model that calls the tool if it is asked to, and speaks once it has the result."""
    asked = seen.body.decode()
    if ASK in asked and "celsius" not in asked:
        return reply(Answer(calls=(Call(TOOL, {"city": "Oslo"}),)), seen)
    return reply(Answer(text="Hello, dear world!"), seen)


def server_of(client: Client, model: str) -> Server:
    return Server(f"{client.base_url}/v1", client.headers["Authorization"].removeprefix("Bearer "), model)


def chosen(api: str, *names: str) -> list[Situation]:
    return [one for one in SITUATIONS if one.api == api and (one.name in names or not names)]


@pytest.mark.parametrize("upstream_api", ["chat", "messages", "gemini"])
async def test_gateway_holds_all_situations(client: Client, upstream: FakeUpstream, upstream_api: str) -> None:
    upstream.answer = modelled
    outcomes = await check_server(server_of(client, f"m-{upstream_api}"), CHECKED)
    assert [line(one) for one in outcomes if one.faults] == []
    assert len(outcomes) == len(CHECKED) == 43
    assert sum(one.events for one in outcomes) > 50
    assert any(IMAGE.encode() in seen.body for seen in upstream.seen)


# A server with faults ------------------------------------------------------------------------------------------------

TEXT = Answer(text="Hello, dear world!")
Document = dict[str, Any]
Plant = Callable[[Document], None]


def without_usage(document: Document) -> None:
    for holder in (document, document.get("message", {}), document.get("response") or {}):
        for name in ("usage", "usageMetadata"):
            holder.pop(name, None)


def of_wrong_type(document: Document) -> None:
    for name in ("choices", "output", "content", "candidates", "delta", "response", "message"):
        if name in document:
            document[name] = 7


def with_foreign(document: Document) -> None:
    document["planted"] = 1


def completed(document: Document) -> Document:
    """A response with all members of the standard."""
    return {**RESPONSE, **document} if document.get("object") == "response" else document


def planted(plant: Plant) -> Callable[[Seen], Reply]:
    """A server whose answers are right but for the plant, in each event of a stream."""

    def answer(seen: Seen) -> Reply:
        right = reply(TEXT, seen)
        if right.frames is None:
            document = completed(json.loads(right.body))
            plant(document)
            return Reply.json(document)
        frames = []
        for frame in b"".join(right.frames).decode().split("\n\n"):
            head, _, data = frame.rpartition("data: ")
            if data.startswith("{"):
                document = json.loads(data)
                if "response" in document:
                    document["response"] = completed(document["response"])
                plant(document)
                frames.append(f"{head}data: {json.dumps(document)}\n\n".encode())
            elif frame:
                frames.append(f"{frame}\n\n".encode())
        return Reply(headers=right.headers, frames=frames)

    return answer


@pytest.mark.no_standard
@pytest.mark.parametrize("plant", [without_usage, of_wrong_type, with_foreign])
@pytest.mark.parametrize("api", ["responses", "chat", "messages", "gemini"])
async def test_planted_fault_is_found_whole_and_streamed(upstream: FakeUpstream, api: str, plant: Plant) -> None:
    upstream.answer = planted(plant)
    outcomes = await check_server(Server(upstream.base_url, "key", "m"), chosen(api, "text", "text, streamed"))
    assert len(outcomes) == 2
    for one in outcomes:
        text = "\n".join(one.faults)
        if plant is with_foreign:
            assert "planted: unknown member" in text or "planted: Extra inputs" in text, text
        elif plant is of_wrong_type:
            assert "Input should be" in text or "valid" in text, text
        elif api != "chat" or one.situation == "text":  # a stream of chat without `include_usage` has none
            assert "usage" in text, text


@pytest.mark.no_standard
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Reply.error(404, "no such path"), "status 404: no such path"),
        (Reply(headers={"Content-Type": "text/html"}, body=b"<html>"), "the content type is 'text/html'"),
        (Reply(headers={"Content-Type": "application/json"}, body=b"{"), "it is no JSON object"),
        (Reply(raw=b""), "the answer broke off: ServerDisconnectedError"),
        (Reply.error(500, "a\x1b[31mb"), "status 500: a�[31mb"),
        (Reply.silence(), "no whole answer came in 0.2 s"),
    ],
)
async def test_answer_that_is_none_is_named_in_one_line(upstream: FakeUpstream, answer: Reply, fault: str) -> None:
    upstream.answer = lambda seen: copy.copy(answer)
    [one] = await check_server(Server(upstream.base_url, "key", "m", timeout=0.2), chosen("chat", "text"))
    assert one.faults == [fault]


@pytest.mark.no_standard
async def test_events_that_do_not_spell_the_answer_are_found(upstream: FakeUpstream) -> None:
    def shortened(document: Document) -> None:
        if document.get("type") == "response.output_text.delta":
            document["delta"] = "Hello"
        if "sequence_number" in document:
            document["sequence_number"] *= 2

    upstream.answer = planted(shortened)
    [one] = await check_server(Server(upstream.base_url, "key", "m"), chosen("responses", "text, streamed"))
    assert "sequence_number does not grow by one" in one.faults
    assert "the deltas of the text do not spell the text of the last event" in one.faults


@pytest.mark.no_standard
async def test_model_that_calls_no_tool_fails_and_the_result_is_not_sent(upstream: FakeUpstream) -> None:
    upstream.answer = lambda seen: reply(TEXT, seen)
    outcomes = await check_server(Server(upstream.base_url, "key", "m"), chosen("chat", "tool call"))
    assert [one.faults for one in outcomes] == [["the answer has no tool call"]]


async def test_refused_key_ends_the_run(upstream: FakeUpstream) -> None:
    upstream.answer = lambda seen: Reply.error(401, "no")
    with pytest.raises(Unreachable, match="refuses the key"):
        await check_server(Server(upstream.base_url, "sk-canary", "m"), CHECKED)
    assert len(upstream.seen) == 1


def test_table_says_what_holds_and_with_which_classes() -> None:
    outcomes = [Outcome("chat", "text", [], 1, 0, 0.25), Outcome("chat", "turns", ["no text"], 1, 4, 1.5)]
    assert line(outcomes[0]) == "holds  chat        text                            0.25 s"
    assert line(outcomes[1]).splitlines()[1] == "       no text"
    assert summary(outcomes).startswith("chat        1 of 2 hold  (openai 3.")
    assert summary(outcomes).endswith("1 of 2 situations hold; 2 answers and 4 events were read")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--base-url", "ftp://x/v1"], "it begins with http:// or https://"),
        (["--base-url", "http://127.0.0.1:9/v1"], "cannot be reached"),
        (["--base-url", "http://127.0.0.1:9/v1", "--key", "env:GATEWAY_NO_SUCH_KEY"], "GATEWAY_NO_SUCH_KEY"),
        (["--base-url", "http://127.0.0.1:9/v1", "--api", "rest"], "rest: it is one of responses, websocket"),
    ],
)
def test_command_that_checks_nothing_says_why(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(commands, ["conformance", "--key", "sk-canary", "--model", "m", *arguments])
    assert done.exit_code == 2
    assert words in done.output and "sk-canary" not in done.output


def test_command_names_the_extra_without_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    for name in [*sys.modules]:
        if name.startswith(("gateway.testing.standards", "gateway.testing.servers")):
            monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(commands, ["conformance", "--key", "k", "--model", "m", "--base-url", "http://x/v1"])
    assert (done.exit_code, "model-gateway[conformance]" in done.output) == (2, True)
