"""Events whose data are in several lines, as the standard of event streams allows, are passed on in one line each."""

from __future__ import annotations

import json

import pytest

from gateway.testing import FakeUpstream, Reply, Seen
from tests.api.conftest import Client as Http

from .answers import Answer, Call, reply
from .clients import CLIENTS, Client, Question

CALL = Call("tide", {"port": {"names": ["Brest", "Cork"]}})


def in_lines(seen: Seen) -> Reply:
    """An answer whose events are indented."""
    said = reply(Answer("Hello", (CALL,)), seen)
    lines: list[str] = []
    for line in b"".join(said.frames or ()).decode().split("\n"):
        if line.startswith("data: {"):
            text = json.dumps(json.loads(line.removeprefix("data: ")), indent=1)
            lines += [f"data: {one}" for one in text.replace('{\n "', '{\n\n "', 1).split("\n")]
        else:
            lines.append(line)
    return Reply(frames=["\n".join(lines).encode()], headers=said.headers)


@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
async def test_events_in_several_lines_arrive(client: Http, upstream: FakeUpstream, dialect: Client, api: str) -> None:
    upstream.answer = in_lines
    path, body = dialect.ask(f"m-{api}", Question(tools=True), stream=True)
    async with client.request("POST", path, json=body) as response:
        text = await response.text()
    assert response.status == 200, text
    assert all(line.startswith(("data: ", "event: ")) for line in text.splitlines() if line)
    got = dialect.read(text, stream=True)
    assert (got.text, [call[1:] for call in got.calls]) == ("Hello", [("tide", CALL.arguments)])


@pytest.mark.parametrize("name", ["a\nb", "a\r\ndata: x", "é", "x" * 129])
async def test_event_whose_name_is_no_name_ends_the_answer(client: Http, upstream: FakeUpstream, name: str) -> None:
    """It would become lines of the answer, and so other events."""
    document = {"type": name, "sequence_number": 1, "output_index": 0}
    begun = {"id": "resp_up", "object": "response", "created_at": 1, "model": "up", "status": "in_progress"}
    created = {"type": "response.created", "sequence_number": 0, "response": {**begun, "error": None, "output": []}}
    frames = [f"data: {json.dumps(one)}\n\n".encode() for one in (created, document)]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=frames))
    body = {"model": "m-responses", "input": "Hi", "stream": True}
    async with client.request("POST", "/v1/responses", json=body) as response:
        document = await response.json()
    assert (response.status, document["error"]["code"]) == (502, "upstream_invalid_response")
