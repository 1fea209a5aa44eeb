"""`answer_call` and `keep_answer`: a hook gets whole answers, and gives them again in place of a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any, ClassVar

import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway import AnswerCall, ChatCompletion, CheckedCall, Hook, KeepAnswer, WholeAnswer, errors, hookimpl
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings
from gateway.config.toml_reader import SettingsError
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.schemas.chat_response import ChatMessage, Choice
from gateway.store import Store
from gateway.testing import FakeUpstream
from gateway.testing.reply import Reply
from tests.api.conftest import settled
from tests.conftest import PEPPER
from tests.ledger_lines import last_line
from tests.polling import until

from .conftest import Client, Scripted, counted
from .test_check_answer import completion, content, streamed

COST = 5 * 1000 + 7 * 2000  # of `completion`, in nano units
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "responses": ("responses", {"input": "Hi"}),
    "messages": ("messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50}),
}
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
]


class Memory(Hook, AnswerCall, KeepAnswer):
    """Gives each account the last answer that it got, and notes both."""

    name = "memory"
    kept: ClassVar[dict[str, WholeAnswer]] = {}
    calls: ClassVar[list[CheckedCall]] = []
    do: ClassVar[Any] = None

    async def answer_call(self, call: CheckedCall) -> Any:
        self.calls.append(call)
        if type(self).do is not None:
            return await type(self).do(call)
        return self.kept.get(call.account)

    async def keep_answer(self, call: CheckedCall, answer: WholeAnswer) -> None:
        self.kept[call.account] = answer


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    document["hooks"]["memory"] = {"plugin": "memory", "timeout": 20, "price_factor": Decimal("0.1")}
    document["server"] = {"response_headers": ["cost"]}
    for name in ("m", "two", "native", "claude"):
        document["models"][name]["hooks"] = ["memory"]
    document["models"]["thinks"] = {**document["models"]["m"], "reasoning": True}
    document["models"]["falls"] = {**document["models"]["m"], "fallbacks": ["free"], "retries": 1}
    document["models"]["checked"] = {**document["models"]["m"], "hooks": ["memory", "check"]}
    return document


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, document: dict[str, Any], scripted: type[Scripted]) -> Iterator[Gateway]:
    def register_hooks(register: Any) -> None:
        register(Memory)
        register(Scripted)

    plugins, module = load_plugins(PluginSettings()), ModuleType("plugin")
    module.register_hooks = hookimpl(register_hooks)  # type: ignore[attr-defined]
    plugins.load(PluginReport(name="memory", version="0", source="test"), lambda: module)
    settings = parse(document, demo=True)
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    gateway.overload.max_lag = 0.0
    yield gateway
    io_loop.run_sync(gateway.close)
    Memory.kept.clear()
    Memory.calls.clear()
    Memory.do = None


async def kept() -> WholeAnswer:
    """The answer that the hook got."""

    async def found() -> WholeAnswer | None:
        return Memory.kept.get("acme")

    return await until(found)


def given(*, tokens: int = 7, **message: Any) -> WholeAnswer:
    """An answer of the hook's own."""
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return WholeAnswer(msgspec.json.encode({"choices": [choice], "usage": usage}))


async def give(answer: WholeAnswer) -> None:
    async def do(call: CheckedCall) -> WholeAnswer:
        return answer

    Memory.do = do


async def asked(client: Client, name: str, **more: Any) -> tuple[int, dict[str, str], str]:
    path, fields = ASKS[name]
    body = {"model": "m", **fields, **more}
    async with client.request("POST", f"/v1/{path}", json=body) as response:
        return response.status, dict(response.headers), await response.text()


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("again", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("first", [False, True], ids=["whole", "streamed"])
async def test_a_kept_answer_is_given_in_every_api_and_costs_a_part(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts, name: str, first: bool, again: bool
) -> None:
    upstream.enqueue(streamed("All ", "is well.") if first else completion("All is well."))
    assert (await asked(client, name, stream=first))[0] == 200
    await kept()
    before = (await settled(accounts)).balance

    status, headers, text = await asked(client, name, stream=again)

    assert (status, headers["x-gateway-answered-by"], len(upstream.seen)) == (200, "memory", 1)
    assert "is well." in text and "x-gateway-provider" not in headers
    cost = 5 * 1000 + (9 if first else 7) * 2000
    assert before - (await settled(accounts)).balance == cost // 10
    report = await gateway.ledger.audit()
    assert report.mismatches == [] and report.recomputed == 2


async def test_the_line_of_a_given_answer_names_the_hook_and_the_factor(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(completion("All is well."))
    await client.chat(model="m")
    await kept()
    counted(gateway)
    response, answer = await client.chat(model="m")
    assert response.headers["x-gateway-cost"] == "0.0000019" and answer["usage"]["total_tokens"] == 12
    await settled(accounts)
    line = await last_line(gateway.ledger, "acme", response.headers["x-request-id"])
    assert line is not None and line.amount == -COST // 10
    meta = line.meta
    assert (meta["hooks"], meta["price_factor"], meta["outcome"]) == ({"memory": "answered"}, "0.1", "ok")
    assert "provider" not in meta and "attempts" not in meta
    assert counted(gateway)["memory", "answer_call", "answered"] == 1.0


@pytest.mark.parametrize("include", [False, True])
async def test_a_stream_of_a_given_answer_has_usage_if_it_is_asked_for(
    client: Client, gateway: Gateway, include: bool
) -> None:
    await give(given(content="word " * 4000, reasoning_content="Let me think.", tokens=5000))
    options = {"stream_options": {"include_usage": True}} if include else {}
    _, text, failure = await client.stream(model="m", **options)
    assert failure is None and text.endswith("data: [DONE]\n\n")
    assert content(text) == "word " * 4000 and text.count('"delta":{"content":') > 3
    assert '"reasoning_content":"Let me think."' in text
    assert ('"total_tokens":5005' in text) is include


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_tools_are_given_in_every_api(client: Client, gateway: Gateway, name: str, stream: bool) -> None:
    await give(given(content=None, tool_calls=CALLS))
    status, _, text = await asked(client, name, stream=stream)
    assert status == 200
    plain = text.replace('\\"', '"').replace("\\", "").replace(" ", "")
    assert all(one in plain for one in ("weather", '{"city":"Paris"}', '{"city":"Rome"}', "call_2"))


@pytest.mark.parametrize("model", ["m", "thinks", "two", "native", "claude"])
@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("stream", [False, True])
async def test_models_of_all_kinds_give_answers_without_their_upstream(
    client: Client, gateway: Gateway, upstream: FakeUpstream, model: str, name: str, stream: bool
) -> None:
    await give(given(content="Hello", reasoning_content="Hm."))
    status, _, text = await asked(client, name, stream=stream, model=model)
    assert status == 200 and "Hello" in text and "error" not in text.replace('"error":null', "")
    assert upstream.seen == []


async def test_a_given_answer_is_counted_by_limits_and_held(
    client: Client, gateway: Gateway, accounts: Accounts
) -> None:
    await give(given(content="Hello"))
    await accounts.credit("acme", -10 * NANO, allow_negative=True)
    response, answer = await client.chat(model="m")
    assert (response.status, answer["error"]["code"]) == (429, "credit_balance_exhausted")
    assert Memory.calls == [], "a call without money asks no hook"


async def test_check_answer_hooks_see_a_given_answer_and_what_is_kept_is_unchanged(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    async def mask(call: CheckedCall, answer: Any) -> Any:
        return answer.with_texts(lambda text: text.replace("Kestrel", "bird"))

    scripted.on_answer = mask
    upstream.enqueue(completion("A Kestrel."))
    for _ in range(2):
        _, answer = await client.chat(model="checked")
        assert answer["choices"][0]["message"]["content"] == "A bird."
        assert b"A Kestrel." in (await kept()).content
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_answer_is_not_kept(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, stream: bool
) -> None:
    async def refuse(call: CheckedCall, answer: Any) -> Any:
        raise errors.ContentFiltered("Not this")

    scripted.on_answer = refuse
    upstream.enqueue(streamed("A Kestrel. ") if stream else completion("A Kestrel."))
    await asked(client, "chat", model="checked", stream=stream)
    await nothing_is_kept(gateway)


async def nothing_is_kept(gateway: Gateway) -> None:
    assert gateway.call_hooks._after == set() and Memory.kept == {}


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_limited_or_filtered_answer_is_not_kept(
    client: Client, gateway: Gateway, upstream: FakeUpstream, reason: str
) -> None:
    document = msgspec.json.decode(completion("Cut").body)
    document["choices"][0]["finish_reason"] = reason
    upstream.enqueue(Reply.json(document))
    await client.chat(model="m")
    await nothing_is_kept(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_a_fallback_is_not_kept(
    client: Client, gateway: Gateway, upstream: FakeUpstream, stream: bool
) -> None:
    upstream.enqueue(Reply.error(500, "no"), streamed("All ", "is well.") if stream else completion("All is well."))
    assert (await asked(client, "chat", model="falls", stream=stream))[0] == 200
    await nothing_is_kept(gateway)


@pytest.mark.no_standard
async def test_a_cut_stream_is_not_kept(client: Client, gateway: Gateway, upstream: FakeUpstream) -> None:
    whole = streamed("All ", "is well.")
    assert whole.frames is not None
    upstream.enqueue(msgspec.structs.replace(whole, frames=whole.frames[:2], end="cut"))
    await client.stream(model="m")
    await nothing_is_kept(gateway)


async def test_a_stream_above_the_bound_is_not_kept(client: Client, gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(*["x" * 200_000] * 6))
    _, text, failure = await client.stream(model="m", max_tokens=1_000_000)
    assert failure is None and len(text) > 1_200_000
    await nothing_is_kept(gateway)


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": "Hi"},
        WholeAnswer(b"{"),
        WholeAnswer(b'{"choices": []}'),
        WholeAnswer(b'{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": null}]}'),
        WholeAnswer(b" " * (1 << 21)),
    ],
)
async def test_an_answer_that_is_none_is_a_failure_of_the_hook(
    client: Client, gateway: Gateway, accounts: Accounts, wrong: Any
) -> None:
    await give(wrong)
    response, answer = await client.chat(model="m")
    assert (response.status, answer["error"]["code"]) == (503, "service_unavailable")
    assert (await settled(accounts)).balance == 10 * NANO
    assert counted(gateway)["memory", "answer_call", "invalid"] == 1.0


async def test_a_hook_may_refuse_a_call_that_is_held(client: Client, gateway: Gateway, accounts: Accounts) -> None:
    async def refuse(call: CheckedCall) -> Any:
        raise errors.InvalidValue("Only cached answers", code="not_cached")

    Memory.do = refuse
    response, answer = await client.chat(model="m")
    assert (response.status, answer["error"]["code"]) == (400, "not_cached")
    assert (await settled(accounts)).balance == 10 * NANO


async def test_a_failing_keeper_does_not_change_the_answer(
    client: Client, gateway: Gateway, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(hook: Memory, call: CheckedCall, answer: WholeAnswer) -> None:
        raise RuntimeError

    monkeypatch.setattr(Memory, "keep_answer", fail)
    upstream.enqueue(completion("All is well."))
    assert (await client.chat(model="m"))[0].status == 200

    async def failed() -> bool:
        return counted(gateway).get(("memory", "keep_answer", "failed")) == 1.0

    await until(failed)


async def test_embeddings_are_kept_and_given(client: Client, gateway: Gateway, upstream: FakeUpstream) -> None:
    body = {"model": "m", "input": ["one", "two"]}
    answers = []
    for _ in range(2):
        async with client.request("POST", "/v1/embeddings", json=body) as response:
            assert response.status == 200
            answers.append(await response.json())
        await kept()
    assert answers[0] == answers[1] and len(upstream.seen) == 1
    async with client.request("POST", "/v1/embeddings", json={**body, "input": "one"}) as response:
        assert response.status == 503, "two vectors are no answer to one input"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/moderations", {"input": ["Hi", "Ho"]}),
        ("/v1/rerank", {"query": "Hi", "documents": ["a", "b"]}),
        ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    ],
)
async def test_other_apis_keep_and_give_answers(
    client: Client, gateway: Gateway, upstream: FakeUpstream, path: str, fields: dict[str, Any]
) -> None:
    answers = []
    for _ in range(2):
        body = fields if "beta" in path else {"model": "m", **fields}
        async with client.request("POST", path, json=body) as response:
            assert response.status == 200
            answers.append((response.headers.get("x-gateway-answered-by"), await response.json()))
        await kept()
    (first, _), (second, _) = answers
    assert (first, second, len(upstream.seen)) == (None, "memory", 1)
    same = [
        {name: value for name, value in one.items() if name not in ("id", "created", "responseId")}
        for _, one in answers
    ]
    assert same[0] == same[1]


async def test_a_hook_sees_the_cache_control_of_the_request(client: Client, gateway: Gateway) -> None:
    await give(given(content="Hello"))
    headers = {**client.headers, "Cache-Control": "no-cache"}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    for named, said in ((headers, "no-cache"), (client.headers, "")):
        async with client.request("POST", "/v1/chat/completions", json=body, headers=named) as response:
            assert response.status == 200
        assert Memory.calls[-1].cache_control == said


async def test_an_answer_of_the_hooks_own_is_built_of_public_classes(client: Client, gateway: Gateway) -> None:
    own = ChatCompletion(choices=[Choice(message=ChatMessage(content="Hello"), finish_reason="stop")])
    await give(WholeAnswer.of(own))
    _, answer = await client.chat(model="m")
    assert answer["choices"][0]["message"]["content"] == "Hello" and answer["usage"]["total_tokens"] > 0


async def test_a_caller_that_leaves_a_given_stream_pays_for_what_it_got(
    client: Client, gateway: Gateway, accounts: Accounts
) -> None:
    await give(given(content="word " * 100_000))
    path, fields = ASKS["chat"]
    async with client.request("POST", f"/v1/{path}", json={"model": "m", **fields, "stream": True}) as response:
        await response.content.readany()
    assert (await settled(accounts)).balance <= 10 * NANO
    await asyncio.sleep(0)
    assert (await gateway.ledger.audit()).mismatches == []


async def test_a_request_of_the_hook_is_no_attempt_of_the_call(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts
) -> None:
    """A caller that leaves while the hook asks something pays nothing."""
    asking = asyncio.Event()

    async def ask(call: CheckedCall) -> None:
        upstream.enqueue(Reply.silence())
        asking.set()
        await gateway.call_hooks.runners["memory"].hook.upstream.send("GET", upstream.url)

    Memory.do = ask
    call = asyncio.ensure_future(client.chat(model="m"))
    await asking.wait()

    async def seen() -> bool:
        return bool(upstream.seen)

    await until(seen)
    call.cancel()
    assert (await settled(accounts)).balance == 10 * NANO


async def test_a_factor_of_the_account_and_one_of_the_hook_are_multiplied(
    io_loop: IOLoop, client: Client, gateway: Gateway, document: dict[str, Any], accounts: Accounts
) -> None:
    document["groups"]["default"] = {"price_factor": Decimal("0.333333333")}
    document["models"]["m"]["price"] = {"input": 1, "output": 2, "minimum": Decimal("0.000000101")}
    await gateway.reload(parse(document, demo=True))
    await give(given(content="Hello"))
    response, _ = await client.chat(model="m")
    await settled(accounts)
    line = await last_line(gateway.ledger, "acme", response.headers["x-request-id"])
    assert line is not None and line.meta["price_factor"] == "0.033333334"
    report = await gateway.ledger.audit()
    assert report.mismatches == [] and report.recomputed == 1


@pytest.mark.parametrize("factor", ["1.1", "-0.1", "0.1"])
def test_a_factor_is_a_number_from_0_to_1(document: dict[str, Any], factor: str) -> None:
    document["hooks"]["memory"]["price_factor"] = factor if factor == "0.1" else Decimal(factor)
    with pytest.raises(SettingsError, match=r"hooks\.memory\.price_factor"):
        parse(document, demo=True)
