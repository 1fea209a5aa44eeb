"""The kit for hooks, and what the guard finds, masks and refuses, within its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import msgspec
import pytest
from gateway_guard import GuardHook
from gateway_guard.rules import Compiled, Rule
from gateway_guard.secret_shapes import OVERLAP, WINDOW, Stopped, secrets_in

from gateway import Secret
from gateway.errors import ContentFiltered, GatewayError, InvalidValue, UpstreamError
from gateway.testing import Reply, Seen, background_upstream, check_hook, checked_answer, checked_call, run_hook

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


# A moderation model ---------------------------------------------------------------------------------------------------

JUDGED: list[list[str]] = []


def judge(seen: Seen) -> Reply:
    assert seen.path == "/v1/moderations"
    inputs = msgspec.json.decode(seen.body)["input"]
    JUDGED.append(inputs)
    if "away" in inputs[0].split():
        return Reply.error(500, "away")
    results = [
        {"flagged": "knife" in text, "categories": {"violence": "knife" in text}, "category_scores": {"violence": 0.6}}
        for text in inputs
    ]
    return Reply.json({"results": results})


@pytest.fixture
def moderation() -> Iterator[dict[str, Any]]:
    JUDGED.clear()
    with background_upstream(judge) as url:
        key = Secret.parse("sk-guard", literals=True)
        yield {"model": "omni", "models": {"url": f"{url}/v1", "api_key": key}, "sides": ["request", "answer"]}


def test_what_the_model_flags_is_refused_on_its_sides(moderation: dict[str, Any]) -> None:
    options: dict[str, Any] = {**OPTIONS, "moderation": moderation}
    assert run_hook(GuardHook, options=options, call=said("All is well.")) is None
    with pytest.raises(InvalidValue, match="moderation: violence"):
        run_hook(GuardHook, options=options, call=said("a knife"))
    for answer in (checked_answer({"a": "a knife"}), checked_answer("a knife. ")):
        with pytest.raises(ContentFiltered, match="moderation: violence"):
            run_hook(GuardHook, options=options, answer=answer)
    asked = len(JUDGED)
    options["moderation"] = {**moderation, "sides": ["request"]}
    assert run_hook(GuardHook, options=options, answer=checked_answer("a knife. ")) is None and len(JUDGED) == asked


def test_the_model_gets_masked_texts_in_pieces(moderation: dict[str, Any]) -> None:
    found = run_hook(GuardHook, options={**OPTIONS, "moderation": moderation}, call=said(f"{AWS} " + "word " * 4000))
    assert found is not None
    [pieces] = JUDGED
    assert len(pieces) == 3 and AWS not in str(pieces) and "[removed]" in pieces[0]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"categories": ["violence"]}, True),
        ({"categories": ["self-harm"]}, False),
        ({"threshold": 0.5}, True),
        ({"threshold": 0.7}, False),
    ],
)
def test_categories_and_a_threshold_say_what_is_refused(
    moderation: dict[str, Any], more: dict[str, Any], refused: bool
) -> None:
    options = {"moderation": {**moderation, **more}}
    if refused:
        with pytest.raises(InvalidValue):
            run_hook(GuardHook, options=options, call=said("a knife"))
    else:
        assert run_hook(GuardHook, options=options, call=said("a knife")) is None


def test_a_text_too_long_to_judge_is_refused_and_a_model_that_is_away_is_a_failure(moderation: dict[str, Any]) -> None:
    options = {"secrets": "off", "moderation": moderation}
    with pytest.raises(InvalidValue, match="too long"):
        run_hook(GuardHook, options=options, call=said("a" * 300_000))
    with pytest.raises(UpstreamError):
        run_hook(GuardHook, options=options, call=said("away"))
