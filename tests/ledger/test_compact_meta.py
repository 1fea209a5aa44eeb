"""Lines with a compact meta: less memory in the store, and everything that reads them sees the bytes of before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.backup.account_pages import _owners
from gateway.billing.call_record import Joined
from gateway.billing.usage import ImageCount, Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger import Hold, Ledger
from gateway.ledger.compact_meta import COUNTS, COUNTS_ORDER, ORDER, compact, expanded
from gateway.ledger.line import read_line
from gateway.ledger.line_meta import LineMeta
from gateway.store.links import slot
from tests.ledger.records import book, record_of
from tests.world import World

USUAL = LineMeta(
    "key_0123456789abcdef", "gpt-5-mini", "openai", "gpt-5-mini-2025-08-07",
    Usage(in_text=812, in_cached=100, out_text=204, out_reasoning=30), attempts=1, outcome="ok",
    price="0123456789abcdef", hold=1_000_000, endpoint="chat", duration_ms=1034, first_token_ms=258,
)  # fmt: skip
_words = st.text(st.characters(codec="utf-8"), max_size=8)
_whole = st.integers(0, 2**53)
_usage = st.builds(
    Usage, requests=st.integers(0, 2), in_text=_whole, in_cached=_whole, in_cache_write_short=_whole, out_text=_whole,
    out_reasoning=_whole, out_image=_whole, provider_cost=st.none() | _whole, audio_seconds_in=st.floats(0, 1e6),
    images=st.none() | st.builds(ImageCount, _whole, _words, _words), in_audio_cached=st.just(0) | _whole,
)  # fmt: skip
_counted = st.builds(Usage, in_text=_whole, in_cached=_whole, out_text=_whole, out_audio=_whole, in_image=_whole)
METAS = st.builds(
    LineMeta, key=_words, model=_words, provider=_words, upstream=_words, usage=st.none() | _counted | _usage,
    estimated=st.booleans(), attempts=st.integers(0, 9), outcome=_words, price=_words, hold=_whole,
    clamped=st.booleans(), reclaimed=st.booleans(), served_model=_words, endpoint=_words, service_tier=_words,
    duration_ms=_whole, first_token_ms=_whole, user=_words, price_factor=_words,
    tags=st.none() | st.dictionaries(_words, _words, max_size=3), upstream_cost=st.none() | _whole, session=_words,
    answers=st.none() | st.tuples(st.builds(AttemptAnswer, _words, _words, _words)),
    joined=st.none() | st.builds(Joined, st.sampled_from(["prefill", "overlap", "restart"]), _whole),
)  # fmt: skip


def compacting(w: World) -> World:
    """The world with a ledger that writes compact lines."""
    w.ledger = Ledger(w.store, {}, compact_lines=True)
    return w


async def stored(w: World, account: str = "acme") -> list[bytes]:
    """The meta of each line of a call, as the store has it."""
    entries = await w.store.link(slot(account)).call("XRANGE", f"{slot(account)}:lg", "-", "+")
    fields = [dict(zip(entry[1][::2], entry[1][1::2], strict=True)) for entry in entries]
    return [line[b"meta"] for line in fields if line[b"kind"] in (b"use", b"adj")]


def test_usual_meta_takes_less_than_half_of_the_bytes() -> None:
    text = msgspec.json.encode(USUAL).decode()
    assert compact(text) == (
        '["key_0123456789abcdef","gpt-5-mini","openai","gpt-5-mini-2025-08-07",[812,204,100,30],1,"ok",'
        '"0123456789abcdef",1000000,"chat",1034,258]'
    )
    assert len(compact(text)) < len(text) / 2
    assert expanded(compact(text)) == text


@given(METAS)
def test_meta_comes_back_to_the_byte(meta: LineMeta) -> None:
    text = msgspec.json.encode(meta).decode()
    form = compact(text)
    assert form.startswith("[") and len(form) <= len(text)
    assert expanded(form) == text


def test_names_of_the_form_are_those_of_the_meta_and_its_usage_in_their_order() -> None:
    assert structs.fields(LineMeta)[0].name == ORDER[0]
    assert tuple(field.name for field in structs.fields(LineMeta)) == ORDER
    assert tuple(field.name for field in structs.fields(Usage) if field.name in COUNTS) == COUNTS_ORDER
    assert sorted(COUNTS) == sorted(COUNTS_ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "no JSON",
        "[]",
        '["key_1","m"]',
        '{"model":"m","key":"key_1"}',
        '{"key":"key_1", "model":"m"}',
        '{"key":"key_1","model":"m","hold":0}',
        '{"key":"key_1","model":"m","usage":{"in_text":0}}',
        '{"key":"key_1","model":"m","refunds":"r1","charged_at":1}',
        '{"key":"key_1","model":"m","joined":{"form":"prefill","offset":1},"session":"s"}',
        '{"key":"key_1","model":"\ud83d"}',
        '{"key":"key_1","model":"m","of a newer version":true}',
    ],
)
def test_meta_that_would_not_come_back_is_stored_as_it_is(text: str) -> None:
    assert compact(text) == text


@pytest.mark.parametrize("text", ["[", "[]", '["key_1"]', '[["key_1"],"m"]x', '["key_1","m",{"a":1},7,{}]x'])
def test_damaged_form_is_an_error_and_not_another_meta(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expanded(text)
    with pytest.raises(ValueError, match=r"."):
        read_line("acme", b"1-0", [b"n", b"1", b"rid", b"r", b"kind", b"use", b"amount", b"-1", b"bal", b"0", b"meta",
                                   text.encode()])  # fmt: skip


@pytest.mark.parametrize("name", ['"x', "]}", '"},{"session":"other"}]', "\\", "é"])
async def test_call_is_settled_with_a_compact_line_whatever_its_names_are(world: Any, name: str) -> None:
    async with world() as w:
        key = await compacting(w).caller(max_session_cost=1000)
        hold = await w.admit(key, 300, model=name, session="agent-7")
        await book(w.ledger, hold, record_of(200, tokens=7, provider=name, outcome="ok", session="agent-7"))
        assert [meta[:1] for meta in await stored(w)] == [b"["]
        line = [line async for line in w.ledger.lines("acme")][-1]
        assert (line.meta["model"], line.meta["provider"], line.amount) == (name, name, -200)
        assert await w.store.client.hget("{a:acme}:ss:agent-7", "spent") == b"200"
        assert (await w.ledger.refund("acme", hold.request_id)).amount == 200
        assert await w.store.client.hget("{a:acme}:ss:agent-7", "spent") == b"0"
        await w.proved()


@pytest.mark.parametrize("joined", [None, Joined("prefill", 12)])
@pytest.mark.parametrize("is_compact", [True, False])
async def test_late_settlement_counts_for_the_session_in_both_forms(
    world: Any, joined: Joined | None, is_compact: bool
) -> None:
    async with world() as w:
        key = await (compacting(w) if is_compact else w).caller(max_session_cost=1000)
        hold = await w.admit(key, 300, session="agent-7")
        await w.store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await w.store.client.hset("{a:acme}", "held", 0)
        await w.store.client.hset("{a:acme}:ss:agent-7", "held", 0)
        await book(w.ledger, hold, structs.replace(record_of(200, session="agent-7"), joined=joined))
        assert await w.store.client.hget("{a:acme}:ss:agent-7", "spent") == b"200"
        await w.proved()


async def test_key_of_a_compact_line_is_found_by_a_backup(world: Any) -> None:
    async with world() as w:
        key = await compacting(w).caller()
        hold: Hold = await w.admit(key)
        await book(w.ledger, hold, record_of(7))
        entries = await w.store.link(slot("acme")).call("XRANGE", "{a:acme}:lg", "-", "+")
        assert _owners(entries) == {key.id.encode()}
