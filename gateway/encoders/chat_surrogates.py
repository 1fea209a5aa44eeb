"""Joins surrogates in the answers of chat models: over the parts of a choice, and in whole answers.

Sharp edge: a high surrogate waits for the next text of its kind; where text of another kind follows, it stays alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.encoders.chat_choice import has_content
from gateway.schemas.answer_surrogates import WaitingSurrogates, whole, whole_values
from gateway.schemas.chat_response import (
    ChatCompletion,
    ChatMessage,
    ChunkChoice,
    CustomCall,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
)

#: Texts of a delta.
TEXTS = ("reasoning_content", "content", "refusal")
TRANSCRIPT = "transcript"  # of the audio
#: Fields with documents, which no text goes on from one chunk to the next in.
DOCUMENTS = ("audio", "annotations", "reasoning_details", "thinking_blocks", "images")

_Place = tuple[int, str, Any]  # choice; field; the number of a call, None for texts


class ChoiceSurrogates:
    """The high surrogates that wait in the choices of one stream."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = WaitingSurrogates()

    @property
    def are_waiting(self) -> bool:
        """Whether one waits."""
        return bool(self._waiting)

    def parts(self, part: ChunkChoice) -> list[ChunkChoice]:
        """The parts to send for `part`, with whole characters; it is changed."""
        delta = part.delta
        texts = _texts_of(part)
        goes_on = {place for place, holder, name in texts if _get(holder, name)}
        out = []
        for place in self._waiting.places if goes_on else []:
            if place[0] == part.index and place not in goes_on:
                out.append(_lone(place, self._waiting.give_up(place)))
        for place, holder, name in texts:
            _set(holder, name, self._waiting.join(place, _get(holder, name)))
        for call in delta.tool_calls or ():
            _make_names_whole(call)
        for name in DOCUMENTS:
            setattr(delta, name, whole_values(getattr(delta, name)))
        part.logprobs = whole_values(part.logprobs)
        if goes_on and part.logprobs is None and not has_content(delta):
            return out  # all of it waits
        return [*out, part]

    def rest(self) -> list[ChunkChoice]:
        """The parts of those that stay alone at the end of the answer."""
        return [_lone(place, self._waiting.give_up(place)) for place in self._waiting.places]


def _texts_of(part: ChunkChoice) -> list[tuple[_Place, Any, str]]:
    """The texts of a part: the place of each, its object, and its name there."""
    delta, index = part.delta, part.index
    found: list[tuple[_Place, Any, str]] = [
        ((index, name, None), delta, name) for name in TEXTS if isinstance(getattr(delta, name), str)
    ]
    for call in delta.tool_calls or ():
        for inner, name in ((call.function, "arguments"), (call.custom, "input")):
            if inner and isinstance(getattr(inner, name), str):
                found.append(((index, name, call.index), inner, name))
    audio: Any = delta.audio
    if isinstance(audio, dict) and isinstance(audio.get(TRANSCRIPT), str):
        found.append(((index, TRANSCRIPT, None), audio, TRANSCRIPT))
    function = delta.function_call
    if function and isinstance(function.arguments, str):
        found.append(((index, "function_call", None), function, "arguments"))
    return found


def _get(holder: Any, name: str) -> str:
    text: str = holder[name] if isinstance(holder, dict) else getattr(holder, name)
    return text


def _set(holder: Any, name: str, text: str) -> None:
    if isinstance(holder, dict):
        holder[name] = text
    else:
        setattr(holder, name, text)


def _lone(place: _Place, text: str) -> ChunkChoice:
    """The part with the character in place of a lone surrogate."""
    index, name, number = place
    if name in TEXTS:
        delta = Delta()
        setattr(delta, name, text)
        return ChunkChoice(index, delta)
    if name == TRANSCRIPT:
        return ChunkChoice(index, Delta(audio=Raw(msgspec.json.encode({TRANSCRIPT: text}))))
    if name == "function_call":
        return ChunkChoice(index, Delta(function_call=FunctionCall(arguments=text)))
    call = ToolCallDelta(number)
    if name == "input":
        call.custom = CustomCall(input=text)
    else:
        call.function = FunctionCall(arguments=text)
    return ChunkChoice(index, Delta(tool_calls=[call]))


def make_whole(answer: ChatCompletion) -> None:
    """Put whole characters in place of the surrogates in a whole answer."""
    for choice in answer.choices:
        message = choice.message
        for name in TEXTS:
            if isinstance(text := getattr(message, name), str):
                setattr(message, name, whole(text))
        for call in message.tool_calls or ():
            _make_names_whole(call)
            _make_payload_whole(call)
        if message.function_call:
            message.function_call.arguments = whole_values(message.function_call.arguments)
        _make_documents_whole(message)
        choice.logprobs = whole_values(choice.logprobs)


def _make_documents_whole(message: ChatMessage) -> None:
    for name in DOCUMENTS:
        setattr(message, name, whole_values(getattr(message, name)))


def _make_names_whole(call: ToolCall | ToolCallDelta) -> None:
    call.id = whole_values(call.id)
    for inner in (call.function, call.custom):
        if inner and inner.name is not UNSET:
            inner.name = whole_values(inner.name)


def _make_payload_whole(call: ToolCall) -> None:
    if call.function:
        call.function.arguments = whole_values(call.function.arguments)
    if call.custom:
        call.custom.input = whole_values(call.custom.input)
