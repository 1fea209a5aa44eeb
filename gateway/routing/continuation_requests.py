"""What another target is asked for the rest of an answer: in the form that it knows, or the caller's request again.

A target that goes on with a begun answer gets it as the last message (`prefill` of its model or of its provider); with
the mode "any" also one of which this is not known. All others, and those that refuse this, get the caller's own request
unchanged, if it is repeatable or the mode is "any"; then the answer must begin with what was delivered. Sharp edge: a
begun answer is sent without white space at its end, because some vendors refuse it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec
from msgspec import Raw, Struct, structs

from gateway.billing.usage import text_units, tokens_of
from gateway.plugins.provider import Chat
from gateway.routing.delivered_text import DeliveredText
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.routing.seam import Prefilled, Restart, Seam
from gateway.schemas.chat_messages import AssistantMessage, TextFormat
from gateway.schemas.chat_request import ChatRequest

TRUE, FALSE = Raw(b"true"), Raw(b"false")


class Asked(Struct):
    """The requests to other targets."""

    delivered: str
    options: list[Adapted[ChatRequest]] = []
    again: set[int] = set()  # ids of the candidates that get the caller's own request
    unchanged: dict[int, Adapted[ChatRequest]] = {}  # by id, that request for candidates that get another one first

    def leave_out(self, candidate: Candidate) -> None:
        """The answer of a target did not fit: it gets the caller's own request, if it may, or the next one is asked."""
        places = [at for at, option in enumerate(self.options) if option.candidate is candidate]
        self.options = self.options[places[0] + 1 :] if places else []
        unchanged = None if id(candidate) in self.again else self.unchanged.get(id(candidate))
        if unchanged is not None:
            self.again.add(id(candidate))
            self.options.insert(0, unchanged)

    def seam(self, candidate: Candidate) -> Seam:
        """How the answer of a target is to be read."""
        return Restart(self.delivered) if id(candidate) in self.again else Prefilled(self.delivered)


def ask_others(delivered: DeliveredText, options: Sequence[Adapted[ChatRequest]], here: Candidate, mode: str) -> Asked:
    """The requests to the targets other than `here`; `mode` is "proved" or "any"."""
    asked = Asked(delivered.text)
    if not asked.delivered or delivered.finish:
        return asked
    for option in options:
        if option.candidate.target is here.target or not _is_single(option.request):
            continue
        repeats = mode == "any" or is_repeatable(option.request)
        form = prefill_of(option.candidate)
        if form == "unknown":
            form = "assistant" if mode == "any" else "none"
        if form != "none" and asked.delivered.strip() and _is_prose(option.request) and not delivered.has_reasoning:
            asked.options.append(_prefilled(option, form, asked, repeats=repeats))
            if repeats:
                asked.unchanged[id(option.candidate)] = option
        elif repeats:
            asked.again.add(id(option.candidate))
            asked.options.append(option)
    return asked


def prefill_of(candidate: Candidate) -> str:
    """How a target is asked to go on with a begun answer."""
    form = candidate.model.prefill
    return cast("Chat", candidate.provider).prefill(candidate.target) if form == "auto" else form


def is_repeatable(request: ChatRequest) -> bool:
    """Whether the same request is meant to get the same answer."""
    return request.temperature == 0 or request.seed is not None


def _prefilled(option: Adapted[ChatRequest], form: str, asked: Asked, *, repeats: bool) -> Adapted[ChatRequest]:
    candidate, delivered = option.candidate, asked.delivered
    request = begun(option.request, delivered, form, factor=candidate.model.token_factor)
    again = structs.replace(option, if_refused=None, if_accepted=partial(asked.again.add, id(candidate)))
    refused = (lambda _: again) if repeats else None
    return structs.replace(option, request=request, if_refused=refused, if_accepted=None)


def begun(request: ChatRequest, text: str, form: str, *, factor: float) -> ChatRequest:
    """The request for the rest of an answer whose beginning is `text`."""
    sent = text.rstrip()
    message: dict[str, object] = {"role": "assistant", "content": sent}
    if form == "prefix":
        message["prefix"] = True
    fields = {**request.fields, "messages": _appended(request, message)}
    if form == "continue_final_message":
        fields |= {"add_generation_prompt": FALSE, "continue_final_message": TRUE}
    limits = {}
    for name in ("max_tokens", "max_completion_tokens"):
        limit = getattr(request, name)
        if limit is not None:
            limits[name] = max(1, limit - tokens_of(text_units(text), factor=factor))
            fields[name] = Raw(b"%d" % limits[name])
    messages = [*request.messages, AssistantMessage(content=sent)]
    return structs.replace(request, messages=messages, fields=fields, **limits)


def _appended(request: ChatRequest, message: dict[str, object]) -> Raw:
    """The messages as the caller sent them, and one more."""
    sent = request.fields.get("messages")
    body = bytes(sent).rstrip() if sent is not None else b""
    if not body:
        return Raw(msgspec.json.encode([*request.messages, message]))
    return Raw(body[:-1] + b"," + msgspec.json.encode(message) + b"]")


def _is_single(request: ChatRequest) -> bool:
    """Whether the answer is one text without numbers or sounds beside it."""
    return request.choices == 1 and not request.logprobs and "audio" not in (request.modalities or ())


def _is_prose(request: ChatRequest) -> bool:
    """Whether the rest of the text may be another one than it would have been."""
    return request.response_format is None or isinstance(request.response_format, TextFormat)
