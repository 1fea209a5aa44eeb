"""The kit for hooks, what counts as the same request, whose answers are shared, and nearest questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import msgspec
import pytest
import redis
from gateway_cache import CacheHook
from gateway_cache.canonical import question

from gateway import CheckedCall, Upstream, WholeAnswer
from gateway.testing import Reply, Seen, background_upstream, check_hook, checked_call, run_hook, whole_answer

HELLO = [{"role": "user", "content": "Hello"}]


Work = Callable[[CacheHook], Awaitable[Any]]


def with_hook(url: str, work: Work, **options: Any) -> Any:
    """What `work` returns with one instance."""

    async def result() -> Any:
        upstream = Upstream()
        hook = CacheHook(msgspec.convert({"url": url, **options}, CacheHook.Options), upstream)
        try:
            return await work(hook)
        finally:
            await hook.close()
            await upstream.close()

    return asyncio.run(result())


def given(url: str, first: CheckedCall, then: CheckedCall, **options: Any) -> WholeAnswer | None:
    """What the second call gets after the answer of the first was kept."""

    async def work(hook: CacheHook) -> WholeAnswer | None:
        await hook.answer_call(first)
        await hook.keep_answer(first, whole_answer())
        return await hook.answer_call(then)

    found: WholeAnswer | None = with_hook(url, work, **options)
    return found


def test_hook_conforms(url: str) -> None:
    check_hook(CacheHook, options={"url": url})


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="cache")
    assert point.load().CacheHook is CacheHook


def test_a_kept_answer_is_given_as_it_was(url: str) -> None:
    assert run_hook(CacheHook, options={"url": url}) is None
    assert run_hook(CacheHook, options={"url": url}, kept=whole_answer("Yes")) == whole_answer("Yes")


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "bob", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "y", "store": True},
        {"temperature": None, "n": None},
        {"top_p": 1.0},
    ],
)
def test_fields_that_do_not_change_the_answer_do_not_count(url: str, fields: dict[str, Any]) -> None:
    same = {"top_p": 1} if "top_p" in fields else {}
    assert given(url, checked_call({"messages": HELLO, **same}), checked_call({**fields, "messages": HELLO}))


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({"messages": [{"role": "user", "content": "hello"}]}, {}),
        ({"temperature": 0.5}, {}),
        ({"max_tokens": 5}, {}),
        ({"seed": 1}, {}),
        ({"tools": []}, {}),
        ({"n": True}, {}),
        ({}, {"model": "other"}),
        ({}, {"endpoint": "completions"}),
        ({}, {"account": "other"}),
    ],
)
def test_all_else_counts(url: str, document: dict[str, Any], fields: dict[str, Any]) -> None:
    assert (
        given(url, checked_call({"messages": HELLO, "n": 1}), checked_call({"messages": HELLO, **document}, **fields))
        is None
    )


@pytest.mark.parametrize(
    ("scope", "fields", "shared"),
    [
        ("account", {"key_id": "key_2"}, True),
        ("account", {"account": "beta"}, False),
        ("key", {"key_id": "key_2"}, False),
        ("everyone", {"account": "beta", "key_id": "key_2"}, True),
    ],
)
def test_answers_are_shared_as_far_as_the_scope_says(url: str, scope: str, fields: Any, shared: bool) -> None:
    found = given(url, checked_call(), checked_call(**fields), scope=scope)
    assert (found is not None) is shared


@pytest.mark.parametrize(
    ("first", "then", "hit"),
    [("", "no-cache", False), ("", "private, No-Store", False), ("no-store", "", False), ("no-cache", "", True)],
)
def test_a_request_can_bypass_the_cache(url: str, first: str, then: str, hit: bool) -> None:
    found = given(url, checked_call(cache_control=first), checked_call(cache_control=then))
    assert (found is not None) is hit


@pytest.mark.parametrize(
    ("document", "fields", "hit"),
    [
        ({}, {}, False),
        ({"temperature": 0}, {}, True),
        ({"temperature": 0.2}, {}, False),
        ({}, {"endpoint": "embeddings"}, True),
    ],
)
def test_only_deterministic_requests_are_served_if_that_is_wanted(
    url: str, document: dict[str, Any], fields: dict[str, Any], hit: bool
) -> None:
    call = checked_call(document, **fields)
    assert (given(url, call, call, requests="deterministic") is not None) is hit


def test_entries_have_a_prefix_and_end(url: str) -> None:
    given(url, checked_call(), checked_call(), prefix="mine:", ttl=100)
    with redis.Redis.from_url(url) as client:
        [name] = client.keys()
        assert name.startswith(b"mine:") and b"Hello" not in name and 0 < client.ttl(name) <= 100


def test_a_large_answer_is_not_kept(url: str) -> None:
    async def work(hook: CacheHook) -> Any:
        await hook.keep_answer(checked_call(), whole_answer("x" * 1000))
        return await hook.answer_call(checked_call())

    assert with_hook(url, work, max_bytes=500) is None


def test_a_server_that_is_away_is_a_failure_at_once() -> None:
    async def work(hook: CacheHook) -> None:
        began = time.monotonic()
        with pytest.raises(redis.ConnectionError):
            await hook.answer_call(checked_call())
        assert time.monotonic() - began < 1.0

    with_hook("unix:///nowhere/s", work)


# By meaning -----------------------------------------------------------------------------------------------------------

VECTORS = {"What is the capital of France?": [1.0, 0.0, 0.1], "the capital of France, please": [1.0, 0.05, 0.1]}


def embeddings(seen: Seen) -> Reply:
    assert seen.headers["authorization"] == "Bearer sk-cache"
    vector = VECTORS.get(msgspec.json.decode(seen.body)["input"], [0.0, 1.0, 0.0])
    return Reply.json({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}]})


@pytest.fixture
def semantic(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    from gateway import Secret

    monkeypatch.setenv("CACHE_KEY", "sk-cache")
    with background_upstream(embeddings) as address:
        key = Secret.parse("env:CACHE_KEY")
        yield {"model": "small", "models": {"url": f"{address}/v1", "api_key": key}, "threshold": 0.9, "entries": 2}


def asks(text: str, *, system: str = "Be short.", request_id: str = "r", **fields: Any) -> CheckedCall:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return checked_call({"messages": messages}, request_id=request_id, **fields)


FRANCE, NEAR = VECTORS


@pytest.mark.parametrize(
    ("then", "hit"),
    [
        (asks(NEAR), True),
        (asks("What is the capital of Spain?"), False),
        (asks(NEAR, system="Be long."), False),
        (asks(NEAR, account="beta"), False),
        (asks(NEAR, model="other"), False),
        (asks(NEAR, endpoint="gemini"), False),
    ],
)
def test_the_nearest_question_of_the_same_request_is_answered(
    url: str, semantic: dict[str, Any], then: CheckedCall, hit: bool
) -> None:
    assert (given(url, asks(FRANCE), then, semantic=semantic) is not None) is hit


def test_questions_are_bounded_and_forgotten_with_their_answer(url: str, semantic: dict[str, Any]) -> None:
    async def work(hook: CacheHook) -> Any:
        for number, text in enumerate([FRANCE, "a", "b"]):
            await hook.answer_call(asks(text, request_id=str(number)))
            await hook.keep_answer(asks(text, request_id=str(number)), whole_answer())
        assert hook._meanings is not None
        assert len(hook._meanings._scopes["acme"]) == 2
        with redis.Redis.from_url(url) as client:
            client.flushall()
        found = await hook.answer_call(asks("c"))
        assert len(hook._meanings._scopes["acme"]) == 1
        return found

    assert with_hook(url, work, semantic=semantic) is None


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"input": "Hi", "messages": None}, "Hi"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], "messages": None}, "Hi"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}, "Hi"),
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "Hi"}]}]}, None),
        ({"prompt": "Hi", "messages": None}, "Hi"),
    ],
)
def test_the_question_is_the_last_text_of_the_user(document: dict[str, Any], text: str | None) -> None:
    found = question(checked_call(document), "account")
    assert (found.text if found is not None else None) == text
