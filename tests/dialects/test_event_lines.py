"""An upstream may write an event in several lines of data; the caller gets it in one."""

from __future__ import annotations

import json

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client as Http

from .answers import Answer, Call, reply
from .clients import CLIENTS, Client, Question
from .test_replays import ask

ANSWER = Answer(calls=(Call("tide", {"port": "Brest"}),), text="Brest, perhaps.")


def in_lines(answer: Reply) -> Reply:
    """The same stream, with the JSON of each event in several lines that end with CR LF."""
    frames = []
    for frame in answer.frames:
        name, _, data = frame.decode().rpartition("data: ")
        lines = [f"data: {line}" for line in json.dumps(json.loads(data), indent=1).splitlines()]
        frames.append((name + "\r\n".join([*lines, "", ""])).encode())
    answer.frames = frames
    return answer


@pytest.mark.parametrize("dialect", [client for client in CLIENTS if client.name != "chat"], ids=lambda one: one.name)
async def test_event_in_several_lines_reaches_a_client_of_its_dialect(
    client: Http, upstream: FakeUpstream, dialect: Client
) -> None:
    path, body = dialect.ask(f"m-{dialect.name}", Question(tools=True), stream=True)
    texts = []
    for change in (lambda answer: answer, in_lines):
        upstream.answer = lambda seen, change=change: change(reply(ANSWER, seen))
        status, content, _ = await ask(client, path, body, name=change.__name__)
        assert status == 200
        read = dialect.read(content.decode(), stream=True)
        texts.append((read.text, read.calls, read.finish))
    assert texts[0] == texts[1]
