"""Text that goes past the readers of streams: no client can tell, nor can the bill, in any pair of dialects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.inference import event_stream
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client as Http
from tests.ledger_lines import last_line
from tests.polling import until

from .clients import CLIENTS, Client, Question
from .word_streams import FORMS, word_stream

PAUSE = 0.004  # seconds between frames, so that each is one piece and finds its reader waiting
TEXTS = (
    "a",
    "b",
    "é",
    "\n",
    '"',
    "\\",
    "\U0001f600",
    "\0",
    " ",
    "data: x\r\n\n",
    "type",
    "text",
    "y",
    "z",
    "model",
    "q",
)
HIGH, LOW = "\ud83d", "\ude00"  # halves of one character

#: A Responses upstream gets the requests of other clients as chat completions.
CELLS = [(one, api) for one in CLIENTS for api in FORMS if api != "responses" or one.name == "responses"]
every_cell = pytest.mark.parametrize(("dialect", "api"), CELLS, ids=[f"{one.name}-{api}" for one, api in CELLS])
EVERY = [(one, api, form) for one, api in CELLS for form in FORMS[api]]
every_form = pytest.mark.parametrize(
    ("dialect", "api", "form"), EVERY, ids=[f"{one.name}-{api}-{form}" for one, api, form in EVERY]
)

#: Forms of which no text can pass; Responses' own events have their padding, which differs each time in reality.
NONE_PASSES = {("gemini", "other candidates")}


class Runs:
    """The same stream with and without the fast path."""

    def __init__(self, http: Http, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.http, self.upstream, self.ledger, self.monkeypatch = http, upstream, ledger, monkeypatch

    async def both(self, dialect: Client, api: str, reply: Reply) -> list[Any]:
        """What the client got and what was recorded, with the fast path and without."""
        first = await self._run(dialect, api, reply)
        with self.monkeypatch.context() as patch:
            patch.setattr(event_stream, "open_fast_path", lambda *args, **others: None)
            return [first, await self._run(dialect, api, reply)]

    async def _run(self, dialect: Client, api: str, reply: Reply) -> Any:
        self.upstream.answer = lambda seen: reply
        path, body = dialect.ask(f"m-{api}", Question(), stream=True)
        content, failure = b"", ""
        async with self.http.request("POST", path, json=body) as response:
            assert response.status == 200
            try:
                async for part in response.content.iter_any():
                    content += part
            except aiohttp.ClientError as error:
                failure = type(error).__name__
        request_id = response.headers["x-request-id"]
        line = await until(lambda: last_line(self.ledger, "acme", request_id))
        meta = {name: line.meta[name] for name in ("usage", "outcome")}
        return frames_of(content.decode().replace(request_id, "")), failure, meta, line.amount


def frames_of(body: str) -> list[Any]:
    """The lines of a stream; the JSON of an event is read, since its members may have another order."""
    lines = body.replace("\r\n", "\n").split("\n")
    return [json.loads(line[5:]) if line.startswith("data: {") else line for line in lines]


@pytest.fixture
def runs(
    client: Http, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Runs:
    monkeypatch.setattr(type(gateway.ids), "completion_id", lambda self, request_id: "chatcmpl-same")
    monkeypatch.setattr("gateway.api.endpoints.chat.time.time", lambda: 1.0)
    return Runs(client, upstream, ledger, monkeypatch)


def streamed(frames: list[bytes]) -> Reply:
    return structs.replace(Reply.stream([], done=False, interval=PAUSE), frames=frames)


@every_form
async def test_answer_and_record_are_the_same_with_and_without_the_fast_path(
    runs: Runs, dialect: Client, api: str, form: str, taken: list[str]
) -> None:
    with_path, without = await runs.both(dialect, api, streamed(word_stream(api, TEXTS, form=form)))
    assert with_path == without
    assert with_path[1] == ""
    assert bool(taken) == ((api, form) not in NONE_PASSES)


def joined(frames: list[bytes]) -> Reply:
    """Four frames arrive together."""
    at = len(frames) // 2
    return streamed([*frames[: at - 4], b"".join(frames[at - 4 : at]), *frames[at:]])


def cut(frames: list[bytes]) -> Reply:
    """The stream ends without its last frames."""
    return structs.replace(streamed(frames[:-10]), end="cut")


@every_cell
@pytest.mark.parametrize("arrive", [joined, cut])
async def test_words_that_arrive_together_or_before_a_cut_are_the_same_with_and_without_the_fast_path(
    runs: Runs, dialect: Client, api: str, arrive: Callable[[list[bytes]], Reply], taken: list[str]
) -> None:
    with_path, without = await runs.both(dialect, api, arrive(word_stream(api, TEXTS)))
    assert with_path == without
    assert taken


@every_cell
async def test_half_a_character_keeps_its_place_among_texts_that_pass(
    runs: Runs, dialect: Client, api: str, taken: list[str]
) -> None:
    texts = ("a", "b", "c", HIGH, LOW, "d", "e", "f", HIGH, "g", "h", "i")
    with_path, without = await runs.both(dialect, api, streamed(word_stream(api, texts)))
    assert with_path == without
    assert dialect.read("\n".join(map(_line, with_path[0])), stream=True).text == "abc\U0001f600def\ufffdghi"
    assert taken


def _line(one: Any) -> str:
    return one if isinstance(one, str) else f"data: {json.dumps(one)}"
