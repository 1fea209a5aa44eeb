"""Histories of other models and of interrupted agents, as Anthropic, Bedrock and Gemini must get them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.testing import FakeUpstream
from tests.api.conftest import Client

from .dialects import MODELS, USER, call, called, calls_in, result, results_in, sent

in_each_dialect = pytest.mark.parametrize("model", MODELS)


@in_each_dialect
async def test_arguments_that_were_cut_do_not_end_the_conversation(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/NousResearch/hermes-agent/issues/14443"""
    cut = '{"port": "Br'
    body = await sent(client, upstream, model, USER, called(call("a", cut)), result("a", "error: invalid JSON"))
    assert calls_in(body) == [("a", "tide", {"invalid_json": cut})]


@in_each_dialect
@pytest.mark.parametrize("arguments", ["null", "", " ", "{}"])
async def test_arguments_of_a_function_without_parameters_are_an_empty_object(
    client: Client, upstream: FakeUpstream, model: str, arguments: str
) -> None:
    """https://github.com/langroid/langroid/pull/988"""
    body = await sent(client, upstream, model, USER, called(call("a", arguments)), result("a"))
    assert calls_in(body) == [("a", "tide", {})]


@in_each_dialect
async def test_arguments_that_are_a_list_do_not_end_the_conversation(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/prism-php/prism/issues/659"""
    body = await sent(client, upstream, model, USER, called(call("a", "[]")), result("a"))
    assert calls_in(body) == [("a", "tide", {"invalid_json": "[]"})]


@in_each_dialect
async def test_id_that_is_used_again_in_each_turn_is_made_unique(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/NVIDIA-NeMo/Switchyard/issues/502"""
    talk = (
        USER,
        called(call("call_0")),
        result("call_0", "6:40"),
        called(call("call_0", name="wind"), call("call_1", name="wind")),
        result("call_1", "calm"),
        result("call_0", "strong"),
    )
    body = await sent(client, upstream, model, *talk)
    ids = [id for id, _, _ in calls_in(body)]
    assert len(set(ids)) == 3
    assert ids[0] == "call_0"  # what is unique stays, so that a cached prompt stays cached
    assert results_in(body) == [(ids[0], "6:40"), (ids[2], "calm"), (ids[1], "strong")]
    assert await sent(client, upstream, model, *talk) == body


@in_each_dialect
async def test_empty_ids_are_replaced_and_results_follow_in_order(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/ducks/claux/issues/40"""
    body = await sent(
        client, upstream, model, USER, called(call(""), call("", name="wind")), result("", "6:40"), result("", "calm")
    )
    ids = [id for id, _, _ in calls_in(body)]
    assert all(ids) and len(set(ids)) == 2
    assert results_in(body) == [(ids[0], "6:40"), (ids[1], "calm")]
    if model == "gemini":
        names = [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]]
        assert names == ["tide", "wind"]


@in_each_dialect
async def test_second_result_of_a_call_is_added_to_the_first(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/Kilo-Org/kilocode/pull/3772"""
    body = await sent(client, upstream, model, USER, called(call("a")), result("a", "wait"), result("a", "6:40"))
    assert results_in(body) == [("a", "wait6:40")]


@pytest.mark.parametrize("model", ["claude", "bedrock"])
@pytest.mark.parametrize("content", [" \n", [{"type": "text", "text": "\n"}]])
async def test_result_of_nothing_but_white_space_is_sent_without_text(
    client: Client, upstream: FakeUpstream, model: str, content: Any
) -> None:
    """https://github.com/anthropics/claude-code/issues/23440"""
    body = await sent(client, upstream, model, USER, called(call("a")), result("a", content))
    assert results_in(body) == [("a", "")]


@pytest.mark.parametrize("model", ["claude", "bedrock"])
async def test_answer_of_nothing_but_white_space_is_left_out(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/anomalyco/opencode/issues/31259"""
    body = await sent(client, upstream, model, USER, {"role": "assistant", "content": " \n"}, USER)
    assert [turn["role"] for turn in body["messages"]] == ["user"]


@in_each_dialect
async def test_words_of_the_user_between_two_results_come_after_them(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """https://github.com/Zoo-Code-Org/Zoo-Code/pull/1705"""
    words = {"role": "user", "content": "See the picture."}
    body = await sent(
        client, upstream, model, USER, called(call("a"), call("b")), result("a", "1"), words, result("b", "2")
    )
    assert results_in(body) == [("a", "1"), ("b", "2")]
    last = body.get("messages", body.get("contents"))[-1]
    assert next(iter((last.get("content") or last["parts"])[-1].values())) in {"text", "See the picture."}


@in_each_dialect
async def test_results_of_parallel_calls_are_one_turn(client: Client, upstream: FakeUpstream, model: str) -> None:
    """https://github.com/MoonshotAI/kosong/issues/45"""
    body = await sent(client, upstream, model, USER, called(call("a"), call("b")), result("a", "1"), result("b", "2"))
    assert len(body.get("messages") or body["contents"]) == 3
    assert results_in(body) == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize("model", ["claude", "bedrock"])
@pytest.mark.parametrize(
    "parameters", [{"type": "object", "properties": None}, {"type": None}, {"type": ["object", "null"]}, None, {}]
)
async def test_schema_of_a_function_without_parameters_is_of_an_object(
    client: Client, upstream: FakeUpstream, model: str, parameters: Any
) -> None:
    """https://github.com/prism-php/prism/issues/315"""
    tool = {"type": "function", "function": {"name": "now", "parameters": parameters}}
    body = await sent(client, upstream, model, USER, tools=[tool])
    if model == "claude":
        schema = body["tools"][0]["input_schema"]
    else:
        schema = body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]
    assert schema["type"] == "object"
    assert None not in schema.values()


async def test_call_without_a_thought_signature_gets_geminis_bypass(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/earendil-works/pi/pull/1825"""
    body = await sent(client, upstream, "gemini", USER, called(call("a")), result("a"))
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


async def test_cache_control_of_agents_reaches_claude(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/1562"""
    marked = {"type": "text", "text": "The tables.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    later = {"type": "text", "text": "When?", "cache_control": {"type": "ephemeral"}}
    talk = ({"role": "system", "content": [marked]}, {"role": "user", "content": [later]})
    body = await sent(client, upstream, "claude", *talk)
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    body = await sent(client, upstream, "bedrock", *talk)
    assert body["system"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


@pytest.mark.parametrize("control", [None, "ephemeral", {"type": "permanent"}, [1]])
async def test_cache_control_that_cannot_be_read_is_no_error(
    client: Client, upstream: FakeUpstream, control: Any
) -> None:
    """The other side of the case before."""
    marked = {"role": "user", "content": [{"type": "text", "text": "When?", "cache_control": control}]}
    body = await sent(client, upstream, "claude", marked)
    assert "cache_control" not in body["messages"][0]["content"][0]


@in_each_dialect
@pytest.mark.parametrize(
    "answer",
    [
        '{"responses": {"400": {"schema": {"$ref": "#/components/schemas/ErrorModel"}}}}',
        '{"items": [{"$defs": {}}]}',
        '{"a": {"\\u0024ref": "x"}}',
    ],
)
async def test_result_of_a_tool_with_names_that_mean_something_upstream_is_sent_as_text(
    client: Client, upstream: FakeUpstream, model: str, answer: str
) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/6065: Gemini takes `$ref` for the name of a media part."""
    body = await sent(client, upstream, model, USER, called(call("a")), result("a", answer))
    assert results_in(body) == [("a", answer)]


async def test_result_of_a_tool_without_such_names_keeps_its_members_for_gemini(
    client: Client, upstream: FakeUpstream
) -> None:
    answer = '{"price": "$5", "a": {"b": 1}}'
    body = await sent(client, upstream, "gemini", USER, called(call("a")), result("a", answer))
    parts = [part for turn in body["contents"] for part in turn["parts"]]
    [response] = [part["functionResponse"] for part in parts if "functionResponse" in part]
    assert response["response"] == {"price": "$5", "a": {"b": 1}}
