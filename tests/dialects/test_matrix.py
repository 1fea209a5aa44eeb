"""Each cell of the matrix: a client of one dialect, an upstream of another, one feature."""

from __future__ import annotations

import json

import pytest

from gateway.testing import FakeUpstream
from tests.api.conftest import Client as Http

from .answers import CACHED, SIGNATURE, TOKENS_IN, TOKENS_OUT, Answer, Call, reply
from .clients import CLIENTS, PDF, PNG, RESULT, Client, Got, Question
from .conftest import UPSTREAMS
from .matrix import NAMED, NONE, PAGE, expected, page

TIDE = Call("tide", {"port": "Brest"})

every_cell = pytest.mark.parametrize("api", UPSTREAMS)
every_client = pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Exchange:
    """Asks through the gateway, and knows what the upstream saw."""

    def __init__(self, http: Http, upstream: FakeUpstream, dialect: Client, api: str, *, stream: bool) -> None:
        self.http, self.upstream, self.dialect = http, upstream, dialect
        self.model, self.stream = f"m-{api}", stream
        self.dropped: list[str] = []

    async def ask(self, question: Question, answer: Answer, before: Got | None = None) -> Got:
        """The answer as the client reads it."""
        self.upstream.answer = lambda seen: reply(answer, seen)
        path, body = self.dialect.ask(self.model, question, stream=self.stream, before=before)
        async with self.http.request("POST", path, json=body) as response:
            text = await response.text()
            assert response.status == 200, text
            self.dropped = [name for name in response.headers.get("x-gateway-dropped-params", "").split(",") if name]
        return self.dialect.read(text, stream=self.stream)

    @property
    def sent(self) -> str:
        """The last request of the upstream, as text."""
        return json.dumps(self.upstream.seen[-1].json)


@pytest.fixture
def exchange(client: Http, upstream: FakeUpstream, dialect: Client, api: str, stream: bool) -> Exchange:
    return Exchange(client, upstream, dialect, api, stream=stream)


@pytest.mark.holds("README.md#model-gateway-4")
@either_way
@every_cell
@every_client
async def test_text_and_usage_arrive(exchange: Exchange, dialect: Client) -> None:
    got = await exchange.ask(Question(), Answer("Four ports."))
    assert (got.text, got.finish) == ("Four ports.", dialect.words["stop"])
    assert got.tokens == (TOKENS_IN, CACHED, TOKENS_OUT)
    assert "Which port?" in exchange.sent and "Be short." in exchange.sent
    assert not exchange.dropped


@either_way
@every_cell
@every_client
async def test_tools_are_offered_called_and_answered(exchange: Exchange, dialect: Client) -> None:
    got = await exchange.ask(Question(tools=True), Answer(calls=(TIDE,)))
    assert [call[1:] for call in got.calls] == [("tide", {"port": "Brest"})]
    assert got.finish == dialect.words["calls"]
    assert "The tide." in exchange.sent and '"port"' in exchange.sent
    after = await exchange.ask(Question(tools=True), Answer("Six."), got)
    assert after.text == "Six."
    assert RESULT in exchange.sent and "Brest" in exchange.sent


@either_way
@every_cell
@every_client
async def test_parallel_calls_keep_their_order_and_their_results(exchange: Exchange) -> None:
    calls = (TIDE, Call("tide", {"port": "Dover"}))
    got = await exchange.ask(Question(tools=True), Answer("Two of them.", calls))
    assert [call[2]["port"] for call in got.calls] == ["Brest", "Dover"]
    assert len({call[0] for call in got.calls}) == 2
    await exchange.ask(Question(tools=True), Answer("Six."), got)
    assert exchange.sent.count(RESULT) == 2
    assert exchange.sent.index("Brest") < exchange.sent.index("Dover") < exchange.sent.index(RESULT)


@either_way
@every_cell
@every_client
async def test_image_reaches_the_upstream_byte_for_byte(exchange: Exchange) -> None:
    await exchange.ask(Question(image=True), Answer("A dot."))
    assert PNG in exchange.sent


@either_way
@every_cell
@every_client
async def test_document_reaches_the_upstream_byte_for_byte(exchange: Exchange) -> None:
    await exchange.ask(Question(pdf=True), Answer("A page."))
    assert PDF in exchange.sent


@either_way
@every_cell
@every_client
async def test_schema_of_the_answer_reaches_the_upstream(exchange: Exchange) -> None:
    got = await exchange.ask(Question(structured=True), Answer('{"port": "Brest"}'))
    assert json.loads(got.text) == {"port": "Brest"}
    # Converse has the schema as a text.
    assert '"required":["port"]' in exchange.sent.replace("\\", "").replace(" ", "")


@either_way
@every_cell
@every_client
async def test_stop_sequence_reaches_the_upstream_or_is_named(exchange: Exchange, dialect: Client, api: str) -> None:
    cell = expected(dialect.name, api, "stop")
    if cell == NONE:
        return
    await exchange.ask(Question(stop=True), Answer("Four."))
    assert ("END" in exchange.sent) == (cell == "yes")
    assert bool(exchange.dropped) == (cell == NAMED)


@either_way
@every_cell
@every_client
@pytest.mark.parametrize("end", ["length", "refusal"])
async def test_reason_of_the_end_is_told_in_the_words_of_the_dialect(
    exchange: Exchange, dialect: Client, end: str
) -> None:
    got = await exchange.ask(Question(), Answer("Four", finish=end))
    assert got.finish == dialect.words[end]
    assert got.text == "Four"


@either_way
@every_cell
@every_client
async def test_reasoning_is_shown_and_its_signature_returns(exchange: Exchange, dialect: Client, api: str) -> None:
    got = await exchange.ask(Question(tools=True, reasoning=True), Answer(calls=(TIDE,), thinking="Brest, perhaps."))
    assert got.thinking == "Brest, perhaps."
    await exchange.ask(Question(tools=True, reasoning=True), Answer("Six."), got)
    assert (SIGNATURE in exchange.sent) == (expected(dialect.name, api, "reasoning") == "yes")


def test_page_equals_the_one_generated_from_the_matrix() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
