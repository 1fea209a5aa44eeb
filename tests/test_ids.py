"""Ids: their shapes are the wire's, and no two are alike, across pages of randomness too."""

from __future__ import annotations

import re
import time

import pytest

from gateway.ids import PAGE, Ids, key_id, padding, request_id, to_request_id, tool_call_id


def test_ids_have_the_formats_of_the_api() -> None:
    ids = Ids()
    for _ in range(3 * PAGE // 24):
        assert re.fullmatch(r"req_[0-9a-f]{32}", ids.request_id())
        assert re.fullmatch(r"chatcmpl-[A-Za-z0-9]{29}", ids.completion_id(ids.request_id()))
    assert re.fullmatch(r"req_[0-9a-f]{32}", request_id())
    assert re.fullmatch(r"call_[A-Za-z0-9]{24}", tool_call_id())
    assert re.fullmatch(r"key_[0-9a-v]{18}", key_id())
    assert all(re.fullmatch(r"[A-Za-z0-9]{0,31}", padding()) for _ in range(200))


def test_no_two_ids_share_a_byte_of_randomness() -> None:
    ids = Ids()
    made = [ids.request_id() for _ in range(5000)]
    assert len(set(made)) == 5000
    tails = [text[-20:] for text in made]
    assert len(set(tails)) == 5000


def test_later_request_ids_are_greater_than_those_of_earlier_pages() -> None:
    ids = Ids()
    first = ids.request_id()
    while time.time() * 1000 <= int(first[4:16], 16) + 1:
        pass
    assert request_id() > first
    assert Ids().request_id() > first
    assert abs(int(first[4:16], 16) / 1000 - time.time()) < 60


def test_ids_of_keys_are_in_the_order_of_their_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.0, 1.0, 1_700_000_000.0, 1_700_000_000.001, 1_800_000_000.0, 2**45 / 1000 - 1]
    ids = []
    for now in times:
        monkeypatch.setattr("gateway.ids.time.time", lambda now=now: now)
        ids += [key_id(), key_id()]
    assert [one[:13] for one in sorted(ids)] == [one[:13] for one in ids]
    assert len(set(ids)) == len(ids) and len({one[:13] for one in ids}) == len(times)


def test_completion_id_has_the_request_id_in_it_and_any_other_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = Ids()
    made = []
    for now in (0.0, 1_700_000_000.001, 1_800_000_000.0, (36**9 - 1) / 1000):
        monkeypatch.setattr("gateway.ids.time.time", lambda now=now: now)
        made += [Ids().request_id() for _ in range(3)]
    shown = {ids.completion_id(one): one for one in made}
    assert len(shown) == len(made)
    assert all(re.fullmatch("chatcmpl-[0-9a-z]{29}", one) for one in shown)
    assert {one: to_request_id(one) for one in shown} == shown
    others = ["", made[0], "chatcmpl-", "chatcmpl-" + "x" * 29, next(iter(shown)) + "0", "chatcmpl-Z" + "0" * 28]
    assert [to_request_id(one) for one in others] == others
