"""What another target is asked for the rest of a cut stream, what of its answer is sent, and what is charged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.billing.usage import text_units, tokens_of
from gateway.config.settings import Settings
from gateway.inference import text_fast_path
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import InflightCheckpoint, read_inflight_checkpoint
from gateway.routing import delivered_text
from gateway.routing.delivered_text import DeliveredText
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.inference.test_continuation import CALL, chunk, cut, rest, said
from tests.inference.two_targets import IN_ORDER, PRICE, settings_with
from tests.polling import until

put_together = DeliveredText.put_together
FORMS = ("assistant", "prefix", "continue_final_message", "none")


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model of two targets for each way of asking, and one with a fallback model."""
    models: dict[str, Any] = {name: {**IN_ORDER, "prefill": name} for name in FORMS}
    models |= {"any": {**IN_ORDER, "continue_cut": "any"}, "unknown": {**IN_ORDER}}
    models["any-again"] = {**IN_ORDER, "continue_cut": True, "prefill": "none"}
    models["alone"] = {"provider": "one", **PRICE}
    models["falls"] = {"provider": "one", "fallbacks": ["alone"], **PRICE}
    return settings_with(models, tmp_path, upstream)


def is_cut(text: str) -> bool:
    return "upstream_stream_truncated" in text and "[DONE]" not in text


@pytest.mark.parametrize(
    ("form", "message", "fields"),
    [
        ("assistant", {}, {}),
        ("prefix", {"prefix": True}, {}),
        ("continue_final_message", {}, {"add_generation_prompt": False, "continue_final_message": True}),
    ],
)
async def test_each_target_is_asked_in_the_form_that_it_knows(
    client: Client, upstream: FakeUpstream, form: str, message: dict[str, Any], fields: dict[str, Any]
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest(" a time."))
    _, text, _ = await client.stream(model=form)
    assert said(text) == "Once upon a time."
    sent = upstream.seen[1].json
    assert sent["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Once upon", **message},
    ]
    assert {name: sent.get(name) for name in ("add_generation_prompt", "continue_final_message")} == {
        "add_generation_prompt": None,
        "continue_final_message": None,
        **fields,
    }


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 7}, {"seed": 7, "max_tokens": 50}])
@pytest.mark.holds("routing.md#streams-that-their-upstream-cuts-1")
async def test_a_repeatable_request_is_sent_again_unchanged_and_compared(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any]
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest("Once upon a time."))
    _, text, _ = await client.stream(model="none", **fields)
    assert said(text) == "Once upon a time."
    assert text.endswith("data: [DONE]\n\n")
    assert {**upstream.seen[1].json, "model": ""} == {**upstream.seen[0].json, "model": ""}


async def test_a_request_that_is_not_repeatable_is_sent_again_only_if_the_setting_says_so(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), cut({"content": "Once upon "}), rest("Once upon a time."))
    _, text, _ = await client.stream(model="none")
    assert is_cut(text)
    assert len(upstream.seen) == 1
    _, text, _ = await client.stream(model="any-again")
    assert said(text) == "Once upon a time."
    assert len(upstream.seen[2].json["messages"]) == 1


async def test_a_target_that_may_not_know_how_to_go_on_is_asked_only_if_the_setting_says_so(
    client: Client, upstream: FakeUpstream
) -> None:
    for second, whole in ((" a time.", "Once upon a time."), ("Once upon a time.", "Once upon a time.")):
        upstream.enqueue(cut({"content": "Once upon "}), rest(second))
        _, text, _ = await client.stream(model="any")
        assert said(text) == whole
        assert upstream.seen[-1].json["messages"][-1] == {"role": "assistant", "content": "Once upon"}
    upstream.enqueue(cut({"content": "Once upon "}))
    _, text, _ = await client.stream(model="unknown")
    assert is_cut(text)


async def test_another_answer_is_not_joined_and_the_caller_gets_the_error_of_the_cut(
    client: Client, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest("Once there was"))
    _, text, _ = await client.stream(model="none", seed=1)
    assert is_cut(text)
    assert said(text) == "Once upon "
    await ledger.drain()
    [line] = [line.json_form() async for line in ledger.lines("acme") if line.kind == "use"]
    assert [answer["code"] for answer in line["answers"]] == ["upstream_stream_truncated", "not_joined"]
    assert {circuit.in_flight for circuit in gateway.health.all()} == {0}
    rows = {str(circuit.key): circuit.count.row for circuit in gateway.health.all() if circuit.key.model}
    assert rows["one#1/first (chat)"] == 1
    assert rows["two#1/second (chat)"] == 0, "it has answered"


async def test_a_text_that_does_not_fit_is_followed_by_the_request_of_the_caller_while_attempts_are_left(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Say hel"}), rest("lo to him."), rest("Say hello to him."))
    _, text, _ = await client.stream(model="assistant", seed=1)
    assert said(text) == "Say hello to him."
    assert [len(seen.json["messages"]) for seen in upstream.seen] == [1, 2, 1]
    await ledger.drain()
    [line] = [line.json_form() async for line in ledger.lines("acme") if line.kind == "use"]
    assert [answer["code"] for answer in line["answers"]] == ["upstream_stream_truncated", "not_joined", "ok"]
    assert line["joined"] == {"form": "restart", "offset": 7}


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_refused_start_leads_to_the_request_of_the_caller_and_never_to_the_caller(
    client: Client, upstream: FakeUpstream, repeatable: bool
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), Reply.error(400, "end with the user"), rest("Once upon a time."))
    _, text, _ = await client.stream(model="assistant", **({"temperature": 0} if repeatable else {}))
    assert "end with the user" not in text
    if repeatable:
        assert said(text) == "Once upon a time."
        assert upstream.seen[2].json["messages"] == [{"role": "user", "content": "Hi"}]
    else:
        assert is_cut(text)
        assert len(upstream.seen) == 2


async def test_a_fallback_model_joins_by_default_where_the_request_is_repeatable(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest("Once upon a time."))
    _, text, _ = await client.stream(model="falls", temperature=0)
    assert said(text) == "Once upon a time."
    frames = [msgspec.json.decode(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert {frame["model"] for frame in frames} == {"falls"}


async def test_a_model_alone_stays_cut(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest("Once upon a time."))
    _, text, _ = await client.stream(model="alone", temperature=0)
    assert is_cut(text)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("fields", [{"response_format": {"type": "json_object"}}, {}], ids=["structured", "reasoned"])
async def test_structured_output_and_reasoned_text_join_only_an_answer_that_begins_again(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any]
) -> None:
    begun = [{"content": '{"a": '}] if fields else [{"reasoning_content": "Hm"}, {"content": '{"a": '}]
    again = Reply.stream(
        [chunk({"reasoning_content": "Other"}), chunk({"content": '{"a": 1}'}), chunk({}, finish="stop")]
    )
    upstream.enqueue(cut(*begun), again)
    _, text, _ = await client.stream(model="assistant", seed=1, **fields)
    assert said(text) == '{"a": 1}'
    assert "Other" not in text
    assert len(upstream.seen[1].json["messages"]) == 1


async def test_the_rest_may_be_a_tool_call(client: Client, upstream: FakeUpstream) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    called = Reply.stream([chunk({"content": " now."}), chunk(CALL), chunk({}, finish="tool_calls")])
    upstream.enqueue(cut({"content": "I look it up"}), called)
    _, text, _ = await client.stream(model="assistant", tools=[tool])
    assert said(text) == "I look it up now."
    assert '"name":"f"' in text
    assert '"finish_reason":"tool_calls"' in text


async def test_characters_cut_in_halves_join_whole(client: Client, upstream: FakeUpstream) -> None:
    first = Reply.stream([], done=False)
    first.frames = [
        rb'data: {"choices":[{"index":0,"delta":{"content":"Party "},"finish_reason":null}]}' + b"\n\n",
        rb'data: {"choices":[{"index":0,"delta":{"content":"\ud83c"},"finish_reason":null}]}' + b"\n\n",
    ]
    first.end = "cut"
    second = Reply.stream([chunk({}, finish="stop")])
    assert second.frames is not None
    second.frames = [
        rb'data: {"choices":[{"index":0,"delta":{"content":"Party \ud83c"},"finish_reason":null}]}' + b"\n\n",
        rb'data: {"choices":[{"index":0,"delta":{"content":"\udf89 on"},"finish_reason":null}]}' + b"\n\n",
        *second.frames,
    ]
    upstream.enqueue(first, second)
    _, text, _ = await client.stream(model="none", seed=1)
    assert said(text) == "Party 🎉 on"


async def test_a_cut_before_the_seam_is_the_error_of_the_first_cut(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), cut({"content": "Once "}))
    _, text, _ = await client.stream(model="none", seed=1)
    assert is_cut(text)
    assert said(text) == "Once upon "
    rows = {str(circuit.key): circuit.count.row for circuit in gateway.health.all() if circuit.key.model}
    assert (rows["one#1/first (chat)"], rows["two#1/second (chat)"]) == (1, 1)


async def test_seams_and_refusals_are_counted(client: Client, upstream: FakeUpstream, gateway: Gateway) -> None:
    gateway.metrics.drain()
    upstream.enqueue(cut({"content": "Once upon "}), rest(" a time."), cut({"content": "Once upon "}), rest("Sure, "))
    await client.stream(model="assistant")
    await client.stream(model="assistant")
    delta = gateway.metrics.drain()
    assert delta is not None
    counts = {labels: value for name, labels, value in delta.counters if name == "gateway_joins"}
    assert counts == {("assistant", "prefill"): 1.0, ("assistant", "refused"): 1.0}


async def test_the_text_fast_path_is_taken_where_a_cut_would_be_continued(
    client: Client, upstream: FakeUpstream, taken: list[str]
) -> None:
    words = [f"word{number} " for number in range(30)]
    reply = Reply.stream([chunk({"content": word}) for word in words], done=False, interval=0.005)
    reply.end = "cut"
    upstream.enqueue(reply, rest("".join(words) + "end."))
    _, text, _ = await client.stream(model="none", seed=1)
    assert said(text) == "".join(words) + "end."
    assert len(taken) > 10


async def test_texts_of_the_fast_path_are_put_together_now_and_then(
    client: Client, upstream: FakeUpstream, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_fast_path, "KEPT", 40)  # quarter tokens
    monkeypatch.setattr(delivered_text, "MANY", 8)
    kept: list[DeliveredText] = []

    def counted(delivered: DeliveredText) -> None:
        kept.append(delivered)
        put_together(delivered)

    monkeypatch.setattr(DeliveredText, "put_together", counted)
    words = [f"{number:03} " for number in range(90)]
    reply = Reply.stream([chunk({"content": word}) for word in words], done=False, interval=0.005)
    reply.end = "cut"
    upstream.enqueue(reply, rest("".join(words) + "end."))
    _, text, _ = await client.stream(model="none", seed=1)
    assert said(text) == "".join(words) + "end."
    assert len(taken) > 60
    assert len(kept) > 4
    assert len(kept[0].texts) < 30


@pytest.mark.parametrize(
    ("second", "form"),
    [
        (" time ended.", "prefill"),
        ("upon a time ended.", "overlap"),
        ("Once upon a time ended.", "restart"),
    ],
)
async def test_line_and_receipt_name_the_seam_and_the_charge_is_of_the_joined_text_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger, second: str, form: str
) -> None:
    upstream.enqueue(cut({"content": "Once "}, {"content": "upon a"}), rest(second))
    response, text, _ = await client.stream(model="assistant", stream_options={"include_usage": True})
    assert said(text) == "Once upon a time ended."
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert line.json_form()["joined"] == {"form": form, "offset": 11}
    [usage] = [msgspec.json.decode(row[6:])["usage"] for row in text.splitlines() if '"choices":[]' in row]
    assert -line.amount == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000
    assert usage["completion_tokens"] == 6, "of the joined text"
    async with client.request("GET", f"/v1/usage/{response.headers['x-request-id']}") as found:
        assert (await found.json())["joined"] == {"form": form, "offset": 11}
    audit = await ledger.audit()
    assert audit.clean


def counted(text: str, prompt: int, completion: int) -> dict[str, Any]:
    """A chunk of content with the counts so far, as some servers send them."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**chunk({"content": text}), "usage": usage}


@pytest.mark.holds("routing.md#what-each-attempt-answered-2")
@pytest.mark.parametrize(
    ("second", "form"),
    [(" time ended.", "prefill"), ("upon a time ended.", "overlap"), ("Once upon a time ended.", "restart")],
)
async def test_attempts_of_a_joined_stream_have_what_their_providers_counted_beside_the_one_charge(
    client: Client, upstream: FakeUpstream, ledger: Ledger, second: str, form: str
) -> None:
    first = Reply.stream([counted("Once ", 7, 1), counted("upon a", 7, 3)], done=False)
    first.end = "cut"
    upstream.enqueue(first, rest(second))
    response, _, _ = await client.stream(model="assistant")
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    document = line.json_form()
    assert document["joined"]["form"] == form
    answers = document["answers"]
    assert [(one["code"], one["tokens_in"], one["tokens_out"]) for one in answers] == [
        ("upstream_stream_truncated", 7, 3),
        ("ok", 900, 3),
    ]
    assert not any(one.get("estimated") for one in answers)
    by_providers = {name: sum(one[name] for one in answers) for name in ("tokens_in", "tokens_out")}
    assert by_providers == {"tokens_in": 907, "tokens_out": 6}
    usage = document["usage"]
    assert usage["in_text"] < 50, "the caller's prompt once, and none of the second target's"
    assert usage["out_text"] == 6, "the joined text once"
    assert -line.amount == usage["in_text"] * 1000 + usage["out_text"] * 2000
    async with client.request("GET", f"/v1/usage/{response.headers['x-request-id']}") as found:
        receipt = await found.json()
    assert [(one["tokens_in"], one["tokens_out"]) for one in receipt["answers"]] == [(7, 3), (900, 3)]
    assert (await ledger.audit()).clean


@pytest.mark.holds("routing.md#what-each-attempt-answered-2")
async def test_answer_that_is_not_joined_has_the_estimated_prompt_and_is_not_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once "}, {"content": "upon a"}), rest("Sure, here it is"))
    await client.stream(model="assistant")
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    cut_short, other = sorted(line.json_form()["answers"], key=lambda one: one["code"] == "not_joined")
    assert "tokens_in" not in cut_short
    assert (other["code"], other["tokens_in"], other["estimated"]) == (
        "not_joined",
        line.meta["usage"]["in_text"],
        True,
    )


@pytest.mark.parametrize(
    ("second", "delivered", "is_joined"),
    [("Once ", "Once upon a", False), (" time ended.", "Once upon a time ended.", True)],
    ids=["before the seam", "after it"],
)
@pytest.mark.holds("routing.md#streams-that-their-upstream-cuts-2")
async def test_a_worker_that_dies_in_the_middle_of_a_join_has_stored_what_was_delivered_and_by_whom(
    client: Client, upstream: FakeUpstream, ledger: Ledger, tmp_path: Path, second: str, delivered: str, is_joined: bool
) -> None:
    ledger.checkpoint = InflightCheckpoint(tmp_path / "a.board")
    endless = Reply.stream([chunk({"content": second})], done=False)
    endless.end = "silence"
    upstream.enqueue(cut({"content": "Once "}, {"content": "upon a"}), endless)
    asking = asyncio.create_task(client.stream(model="assistant"))
    await upstream.wait_started(1, frames=1)
    expected = tokens_of(text_units(delivered), factor=1.0)

    def stored() -> int:
        entries = read_inflight_checkpoint(tmp_path / "a.board").entries
        return int(msgspec.json.decode(entries[0].meta)["usage"]["out_text"]) if entries else 0

    await until(lambda: stored() == expected)
    [entry] = read_inflight_checkpoint(tmp_path / "a.board").entries
    meta = msgspec.json.decode(entry.meta)
    names = [(answer["provider"], answer["code"]) for answer in meta.get("answers", ())]
    if is_joined:
        assert (meta["provider"], meta["upstream"], meta["attempts"]) == ("two", "second", 2)
        assert meta["joined"] == {"form": "prefill", "offset": len("Once upon a")}
        assert names == [("one", "upstream_stream_truncated"), ("two", "worker_died")]
    else:
        assert (meta["provider"], meta["upstream"], "joined" in meta, names) == ("one", "first", False, [])
    asking.cancel()
