"""Which targets may reason without showing it: by setting, by name, by effort, and by what they have charged."""

from __future__ import annotations

import json
import logging

import pytest

from gateway.plugins.provider import Target
from gateway.routing.hidden_reasoning import HiddenReasoning, effort_of, may_reason
from gateway.schemas.chat_request import decode_chat_request

NAMES = {
    "gpt-5": True,
    "gpt-5-mini-2026-08-07": True,
    "openai/gpt-5.2": True,
    "gpt-5-chat-latest": False,
    "gpt-4o": False,
    "o1": True,
    "o3-mini": True,
    "o4-mini-deep-research": True,
    "omni-moderation": False,
    "gemini-2.5-flash": True,
    "models/gemini-3-pro-preview": True,
    "gemini-flash-latest": True,
    "gemini-1.5-flash-latest": False,
    "gemini-2.0-flash": False,
    "deepseek-reasoner": True,
    "deepseek-ai/DeepSeek-R1": True,
    "deepseek-chat": False,
    "grok-4-1-fast-reasoning": True,
    "grok-4-1-fast-non-reasoning": False,
    "Qwen/QwQ-32B": True,
    "qwen3-235b-thinking-2507": True,
    "claude-sonnet-4-5": False,
    "llama-3.3-70b": False,
}


@pytest.mark.holds("prices.md#what-is-held-4")
@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_name_of_the_upstream_model_decides_without_a_setting(name, expected):
    assert may_reason(name) is expected
    assert HiddenReasoning(None, name).expected(None) is expected
    assert HiddenReasoning(None, name).expected("none") is False


@pytest.mark.holds("prices.md#what-is-held-4")
@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("effort", [None, "none", "high"])
def test_setting_decides_whatever_the_name_and_the_effort(setting, effort):
    for name in NAMES:
        assert HiddenReasoning(setting, name).expected(effort) is setting


def test_effort_makes_a_model_reason_that_does_so_if_asked():
    assert HiddenReasoning(None, "claude-sonnet-4-5").expected("low") is True
    assert HiddenReasoning(None, "gpt-4o").expected("low") is False


@pytest.mark.holds("prices.md#what-is-held-4")
def test_target_that_charged_hidden_reasoning_is_expected_to_do_so_again_and_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    target = Target(provider="up", model="new-model", public_model="m")
    reasoning = HiddenReasoning(None, "new-model")
    assert reasoning.expected(None) is False
    for _ in range(3):
        reasoning.learn(target)
    assert reasoning.expected(None) is True
    assert reasoning.expected("none") is False
    (line,) = caplog.messages
    assert "model new-model of provider up reasons without showing it" in line
    assert 'reasoning = true for "m"' in line.replace("`", "")


@pytest.mark.holds("prices.md#what-is-held-4")
def test_target_that_reasoned_in_spite_of_the_effort_none_is_expected_to_do_so_again(caplog):
    caplog.set_level(logging.WARNING)
    reasoning = HiddenReasoning(None, "gpt-5")
    for _ in range(3):
        reasoning.learn(Target(provider="up", model="gpt-5"), "none")
    assert reasoning.expected("none") is True
    assert len(caplog.messages) == 1


def test_reasoning_that_was_asked_for_is_expected_of_calls_that_ask_for_it_only():
    reasoning = HiddenReasoning(None, "new-model")
    reasoning.learn(Target(provider="up", model="new-model"), "high")
    assert reasoning.expected("low") is True
    assert reasoning.expected(None) is False
    assert reasoning.expected("none") is False


def test_setting_is_not_changed_by_what_a_target_charged(caplog):
    reasoning = HiddenReasoning(False, "new-model")
    reasoning.learn(Target(provider="up", model="new-model"))
    assert reasoning.expected("high") is False
    assert caplog.messages == []


@pytest.mark.holds("prices.md#what-is-held-4")
@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"reasoning_effort": "low"}, "low"),
        ({"top_k": 4}, None),
        ({"reasoning": {"effort": "high"}}, "asked"),
        ({"reasoning": {"effort": "none"}}, None),
        ({"reasoning": {"enabled": False}}, None),
        ({"reasoning": None}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "asked"),
        ({"thinking": {"type": "disabled"}}, None),
        ({"enable_thinking": True}, "asked"),
        ({"enable_thinking": False}, None),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "asked"),
        ({"chat_template_kwargs": {"thinking": False}}, None),
        ({"reasoning_effort": "none", "thinking": {"type": "enabled"}}, "asked"),
        ({"reasoning_effort": "none", "thinking": {"type": "disabled"}}, "none"),
        ({"enable_thinking": False, "reasoning": {"max_tokens": 2000}}, "asked"),
    ],
)
def test_fields_of_dialects_ask_for_reasoning_unless_they_decline_it(fields, effort):
    document = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    request = decode_chat_request(json.dumps(document).encode())
    assert effort_of(request) == effort


def test_field_of_a_dialect_that_is_not_forwarded_asks_for_nothing():
    document = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "enable_thinking": True}
    request = decode_chat_request(json.dumps(document).encode())
    assert effort_of(request.without(["enable_thinking"])) is None
