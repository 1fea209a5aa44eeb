"""The kit for hooks, and what the guard finds, masks and refuses, within its time."""

from __future__ import annotations

import threading
import time
from importlib.metadata import entry_points
from typing import Any

import msgspec
import pytest
from gateway_guard import GuardHook
from gateway_guard.rules import Compiled, Rule
from gateway_guard.secret_shapes import OVERLAP, WINDOW, Stopped, secrets_in

from gateway.errors import ContentFiltered, GatewayError, InvalidValue
from gateway.testing import check_hook, checked_answer, checked_call, run_hook

AWS = "AKIAIOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2" * 9
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----"
CARD = {"name": "card", "pattern": r"\b[0-9]{4}([ -]?[0-9]{4}){3}\b", "mask": "[card]"}
PROJECT = {"name": "project", "pattern": r"(?i)\bproject kestrel\b", "action": "refuse", "sides": ["request"]}
OPTIONS = {"rules": [CARD, PROJECT]}


def said(text: str) -> Any:
    return checked_call({"messages": [{"role": "user", "content": text}]})


def masked(text: str, **options: Any) -> str:
    found = run_hook(GuardHook, options={**OPTIONS, **options}, call=said(text))
    return text if found is None else found["messages"][0]["content"]


def test_hook_conforms() -> None:
    check_hook(GuardHook, options=OPTIONS)


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="guard")
    assert point.load().GuardHook is GuardHook


@pytest.mark.parametrize("secret", [AWS, GITHUB, PRIVATE_KEY, "https://me:hunter2secret@host/x"])
def test_a_secret_is_masked_wherever_it_stands(secret: str) -> None:
    secret_part = "hunter2secret" if "hunter" in secret else secret
    assert secret_part not in masked(f"one {secret} two {secret} three")
    for length in (0, WINDOW - 10, WINDOW - OVERLAP, 3 * WINDOW - 5):
        assert secret_part not in masked("x " * (length // 2) + secret)


def test_prose_passes_as_it_is() -> None:
    text = "The password of the day is swordfish, said the key-keeper; see https://example.com/a?b=c and 3.14."
    assert run_hook(GuardHook, options=OPTIONS, call=said(text)) is None


def test_matches_of_a_rule_are_masked_in_requests_and_answers() -> None:
    assert masked("pay 1234 5678 1234 5678 now") == "pay [card] now"
    document = {"choices": [{"message": {"content": "1234567812345678"}}]}
    found = run_hook(GuardHook, options=OPTIONS, answer=checked_answer(document))
    assert found == {"choices": [{"message": {"content": "[card]"}}]}


def test_a_mask_is_no_template() -> None:
    assert masked("abc", rules=[{"name": "b", "pattern": "b", "mask": r"\0\1\g<0>"}]) == r"a\0\1\g<0>c"


def test_a_rule_refuses_on_its_sides_only() -> None:
    with pytest.raises(InvalidValue, match="project") as refusal:
        run_hook(GuardHook, options=OPTIONS, call=said("about Project Kestrel"))
    assert refusal.value.code == "guarded"
    assert run_hook(GuardHook, options=OPTIONS, answer=checked_answer({"a": "Project Kestrel"})) is None


def test_secrets_may_be_refused_or_left() -> None:
    with pytest.raises(InvalidValue):
        masked(AWS, secrets="refuse")
    assert masked(AWS, secrets="off") == AWS


@pytest.mark.parametrize(
    ("before", "text", "passes"),
    [
        ("", "All is well. ", True),
        ("", f"{AWS} ", False),
        ("pay 1234 5678 ", "1234 5678 now", False),
        ("paid 1234 5678 1234 5678. ", "Next one.", True),
    ],
)
def test_a_part_of_a_stream_is_refused_if_a_match_ends_in_it(before: str, text: str, passes: bool) -> None:
    part = checked_answer(text, before=before)
    if passes:
        assert run_hook(GuardHook, options=OPTIONS, answer=part) is None
    else:
        with pytest.raises(ContentFiltered):
            run_hook(GuardHook, options=OPTIONS, answer=part)


def test_a_pattern_that_is_none_names_its_rule() -> None:
    with pytest.raises(ValueError, match="rule look"):
        Compiled(Rule(name="look", pattern="(?=x)"), "")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "a", "pattern": ""}, Rule)


@pytest.mark.parametrize("text", ["a" * 300_000, "eyJ" * 100_000, "AKIA" * 75_000, "https://" * 40_000, "x:" * 150_000])
def test_no_text_makes_a_search_long(text: str) -> None:
    began = time.thread_time()
    for start, end in secrets_in(text, threading.Event()):
        assert end > start
    assert time.thread_time() - began < 10.0


def test_a_stopped_search_ends_at_the_next_window() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        list(secrets_in("text " * 10_000, stop))


def test_no_message_of_a_refusal_has_the_text() -> None:
    with pytest.raises(GatewayError) as refusal:
        masked(AWS, secrets="refuse")
    assert AWS not in str(refusal.value.envelope())
