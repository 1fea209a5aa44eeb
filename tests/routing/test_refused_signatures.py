"""What is sent once more after an upstream has refused signed reasoning, in each dialect."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw, Struct, structs

from gateway.errors import UpstreamRejected
from gateway.routing.refused_signatures import without_signatures
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.native_request import GEMINI, RESPONSES, NativeRequest

CALL = {"id": "call_0001", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
OPENAI = "The encrypted content gAAA...DQ== could not be verified."
REFUSALS = [
    OPENAI,
    "Corrupted thought signature.",
    "Invalid thought signature.",
    "Unable to submit request because Thought signature is not valid.",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
]


def chat(*messages: Any) -> ChatRequest:
    asked = [{"role": "user", "content": "Hi"}, *messages]
    return decode_chat_request(msgspec.json.encode({"model": "m", "messages": asked}))


class Place(Struct):
    """A candidate that takes requests of every dialect untranslated, or of none."""

    untranslated: bool
    target: Any = None

    @property
    def provider(self) -> Place:
        return self

    def accepted_fields(self, dialect: str, target: Any) -> object | None:
        return object() if self.untranslated else None


def again(request: ChatRequest, text: str, *, untranslated: bool = True) -> Adapted[ChatRequest] | None:
    option = Adapted(cast("Any", Place(untranslated)), request, ("seed",))
    found = without_signatures(option, UpstreamRejected(text))
    if found is not None and found.if_accepted is not None:
        assert option.dropped == ("seed",)
        found.if_accepted()
        found.dropped = option.dropped
    return found


def native(dialect: str, name: str, value: Any) -> ChatRequest:
    sent = NativeRequest(dialect, {name: Raw(msgspec.json.encode(value))})
    return structs.replace(chat(), native=sent)


def sent(found: Adapted[ChatRequest] | None, name: str) -> Any:
    assert found is not None and found.request.native is not None
    return msgspec.json.decode(found.request.native.fields[name])


def test_responses_loses_its_reasoning_items() -> None:
    user = {"role": "user", "content": "Hi"}
    found = again(native(RESPONSES, "input", [{"type": "reasoning", "encrypted_content": "x"}, user]), OPENAI)
    assert sent(found, "input") == [user]
    assert found is not None and found.dropped == ("seed", "input.reasoning")


def test_gemini_loses_its_signatures_in_both_spellings() -> None:
    parts: list[Any] = [
        {"text": "Hm.", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "a"}, "thought_signature": "c2ln"},
        {"functionCall": {"name": "b"}},
    ]
    found = again(native(GEMINI, "contents", [{"role": "model", "parts": parts}]), REFUSALS[1])
    plain = [{"text": "Hm."}, {"functionCall": {"name": "a"}}, {"functionCall": {"name": "b"}}]
    assert sent(found, "contents")[0]["parts"] == plain
    assert found is not None and found.dropped == ("seed", "contents.thoughtSignature")


def test_gemini_takes_single_objects_in_place_of_lists() -> None:
    single = {"role": "model", "parts": {"text": "Hm.", "thoughtSignature": "c2ln"}}
    found = again(native(GEMINI, "contents", single), REFUSALS[1])
    assert sent(found, "contents") == [{"role": "model", "parts": [{"text": "Hm."}]}]


def test_code_of_a_refusal_is_enough() -> None:
    request = native(RESPONSES, "input", [{"type": "reasoning"}, {"role": "user", "content": "Hi"}])
    error = UpstreamRejected("No.", detail="upstream status 400: invalid_encrypted_content invalid_request_error")
    assert without_signatures(Adapted(cast("Any", Place(True)), request, ()), error) is not None


@pytest.mark.parametrize("text", REFUSALS)
def test_translated_request_loses_what_carries_signatures(text: str) -> None:
    signed: dict[str, Any] = {
        "role": "assistant",
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}],
        "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "c2ln"}}}],
    }
    result = {"role": "tool", "tool_call_id": "call_0001", "content": "6:40"}
    found = again(chat(signed, result), text)
    assert found is not None and found.dropped == ("seed", "messages.reasoning")
    plain = chat({"role": "assistant", "tool_calls": [CALL]}, result)
    assert found.request.messages == plain.messages
    wire = msgspec.json.decode(found.request.fields["messages"])
    assert wire[1] == {"role": "assistant", "tool_calls": [CALL]}


@pytest.mark.parametrize("text", ["max_tokens is too large", "Function call is missing a thought_signature"])
def test_other_refusals_change_nothing(text: str) -> None:
    assert again(native(RESPONSES, "input", [{"type": "reasoning"}, {"role": "user", "content": "Hi"}]), text) is None


def test_request_without_signatures_is_not_sent_again() -> None:
    assert again(chat(), OPENAI) is None


def test_translated_request_is_not_sent_again_for_what_only_its_own_dialect_has() -> None:
    """The upstream never saw the reasoning items, so a second request would be the first one."""
    request = native(RESPONSES, "input", [{"type": "reasoning"}, {"role": "user", "content": "Hi"}])
    assert again(request, OPENAI) is not None
    assert again(request, OPENAI, untranslated=False) is None
