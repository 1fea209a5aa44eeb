"""Streamed tool calls, as servers write them that do not number, name or identify them as OpenAI does."""

from __future__ import annotations

from typing import Any

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

from .streams import calls_of, chunk, finishes, fragment

TIDE, WIND = '{"port":"Brest"}', '{"at":"noon"}'


async def received(client: Client, upstream: FakeUpstream, *fragments: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and arguments of the calls that the client puts together."""
    upstream.enqueue(Reply.stream([*fragments, chunk(finish="tool_calls")]))
    _, text, failure = await client.stream()
    assert failure is None
    assert finishes(text) == ["tool_calls"]
    return calls_of(text)


async def test_parallel_calls_with_one_index_are_told_apart_by_their_ids(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/0xPlaygrounds/rig/pull/1443"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name="tide"),
        fragment(TIDE, index=0),
        fragment("", index=0, id="b", name="wind"),
        fragment(WIND, index=0),
    ) == [("tide", TIDE), ("wind", WIND)]


async def test_whole_calls_with_one_index_and_no_ids_are_told_apart(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/LibreChat-AI/agents/pull/260"""
    assert await received(
        client,
        upstream,
        fragment(TIDE, index=0, id="", name="tide"),
        fragment(WIND, index=0, id="", name="wind"),
        fragment('{"at":"nine"}', index=0, id="", name="wind"),
    ) == [("tide", TIDE), ("wind", WIND), ("wind", '{"at":"nine"}')]


async def test_id_that_changes_after_the_first_fragment_does_not_begin_a_call(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/poolsideai/pool/issues/9"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name="tide"),
        fragment('{"port":', index=0, id="b"),
        fragment('"Brest"}', index=0, id="b"),
    ) == [("tide", TIDE)]


async def test_new_id_and_the_name_in_each_fragment_do_not_begin_calls(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/vllm-project/vllm/pull/23522"""
    assert await received(
        client,
        upstream,
        fragment('{"port"', index=0, id="a", name="tide"),
        fragment(":", index=0, id="b", name="tide"),
        fragment('"Brest"}', index=0, id="c", name="tide"),
    ) == [("tide", TIDE)]


async def test_fragments_of_two_calls_that_take_turns_go_to_the_call_of_their_id(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/NousResearch/hermes-agent/pull/101654"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name="tide"),
        fragment("", index=0, id="b", name="wind"),
        fragment(TIDE, index=0, id="a"),
        fragment(WIND, index=0, id="b"),
    ) == [("tide", TIDE), ("wind", WIND)]


async def test_id_without_an_index_goes_on_with_its_call(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/oracle/langchain-oracle/pull/254"""
    assert await received(
        client,
        upstream,
        fragment("", id="a", name="tide"),
        fragment('{"port":', id="a"),
        fragment('"Brest"}', id="a"),
        fragment(WIND, id="b", name="wind"),
    ) == [("tide", TIDE), ("wind", WIND)]


async def test_calls_without_an_index_begin_with_an_id(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/oracle/langchain-oracle/issues/253"""
    assert await received(
        client,
        upstream,
        fragment("", id="a", name="tide"),
        fragment(TIDE),
        fragment("", id="b", name="wind"),
        fragment(WIND),
    ) == [("tide", TIDE), ("wind", WIND)]


async def test_name_that_comes_after_the_arguments_is_part_of_the_call(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/vercel/ai/issues/14722"""
    assert await received(
        client,
        upstream,
        fragment('{"port":', index=0, id="a", type="function"),
        fragment('"Brest"}', index=0, name="tide"),
    ) == [("tide", TIDE)]


async def test_empty_name_in_the_first_fragment_is_replaced_by_the_real_one(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/jjang-ai/vmlx/pull/244"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name=""),
        fragment(TIDE, index=0, id="a", name="tide"),
    ) == [("tide", TIDE)]


async def test_empty_names_and_ids_of_later_fragments_change_nothing(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/OpenBMB/PilotDeck/pull/120"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name="tide"),
        fragment('{"port":', index=0, id="", name=""),
        fragment('"Brest"}', index=0, id="", name=""),
    ) == [("tide", TIDE)]


async def test_arguments_that_are_repeated_from_their_start_are_sent_once(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/NousResearch/hermes-agent/pull/35718"""
    assert await received(
        client,
        upstream,
        fragment('{"po', index=0, id="a", name="tide"),
        fragment('{"port":', index=0),
        fragment(TIDE, index=0),
        fragment(TIDE, index=0),
    ) == [("tide", TIDE)]


async def test_whole_call_at_the_end_of_its_fragments_is_not_sent_again(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/anomalyco/opencode/pull/17339"""
    assert await received(
        client,
        upstream,
        fragment("", index=0, id="a", name="tide"),
        fragment('{"port":', index=0),
        fragment('"Brest"}', index=0),
        fragment(TIDE, index=0, id="a", name="tide"),
    ) == [("tide", TIDE)]


async def test_object_inside_an_equal_object_is_not_taken_for_a_repetition(
    client: Client, upstream: FakeUpstream
) -> None:
    """The other side of the two cases before: `{"of":` is followed by an object that begins in the same way."""
    assert await received(
        client,
        upstream,
        fragment('{"of":', index=0, id="a", name="tree"),
        fragment('{"of":{}', index=0),
        fragment("}}", index=0),
    ) == [("tree", '{"of":{"of":{}}}')]


async def test_nulls_in_place_of_absent_fields_of_a_fragment_change_nothing(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/pydantic/pydantic-ai/pull/1802"""
    assert await received(
        client,
        upstream,
        chunk({"tool_calls": [{"index": 0, "id": "a", "type": None, "function": {"name": "now", "arguments": None}}]}),
        chunk({"tool_calls": [{"index": 0, "id": None, "function": {"name": None, "arguments": "{}"}}]}),
    ) == [("now", "{}")]
