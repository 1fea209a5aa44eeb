"""What happens to chat request fields that a target cannot honour (wire contract 1.1, field classes).

Semantic fields refuse the request, sampling fields and hints are dropped, unknown ones follow the operator's switch.
The dropped names go into `x-gateway-dropped-params`. A provider says what it honours with `chat_fields`; None means
everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Raw, Struct, structs

from gateway.errors import UnsupportedParameter
from gateway.provider import Chat
from gateway.routing import Candidate
from gateway.schemas.chat_request import FIELD_CLASS, ChatRequest
from gateway.schemas.forbidden import header_name

#: Content parts that are semantic demands of their own.
MEDIA = frozenset({"image_url", "input_audio", "file"})


class Fitted(Struct):
    """A request as one candidate will see it, and the names of the fields it will not."""

    candidate: Candidate
    request: ChatRequest
    dropped: tuple[str, ...]


def fit(request: ChatRequest, candidates: list[Candidate], unknown_params: str) -> list[Fitted]:
    """The candidates that can honour the request, each with its version of it; raises when none can."""
    fitted: list[Fitted] = []
    refusal: UnsupportedParameter | None = None
    for candidate in candidates:
        try:
            fitted.append(_fit_one(request, candidate, unknown_params))
        except UnsupportedParameter as error:
            refusal = refusal or error
    if not fitted and refusal is not None:
        raise refusal
    return fitted


def with_output_limit(fitted: Fitted, tokens: int) -> Fitted:
    """The same with at most that many tokens of output, in the caller's spelling if there is one."""
    request = fitted.request
    given = [name for name in ("max_tokens", "max_completion_tokens") if getattr(request, name) is not None]
    limits = dict.fromkeys(given or ["max_tokens"], tokens)
    fields = request.fields | {name: Raw(b"%d" % tokens) for name in limits}
    return structs.replace(fitted, request=structs.replace(request, fields=fields, **limits))


def _fit_one(request: ChatRequest, candidate: Candidate, unknown_params: str) -> Fitted:
    honoured = cast("Chat", candidate.provider).chat_fields  # the router has checked that it is one
    unsupported = candidate.model.unsupported_params
    if unknown_params == "reject":
        request.refuse_unknown()
    if honoured is None and not unsupported and (unknown_params == "forward" or not request.extra):
        return Fitted(candidate, request, request.dropped)
    if honoured is not None:
        _refuse_semantic(request, honoured)
    unwanted = [name for name in request.present_fields() if _is_unwanted(name, honoured, unsupported)]
    if unknown_params == "drop" or honoured is not None:
        unwanted += request.extra
    named = (name for name in unwanted if FIELD_CLASS.get(name) != "hint")  # hints go silently
    return Fitted(candidate, _without(request, unwanted), (*request.dropped, *map(header_name, named)))


def _refuse_semantic(request: ChatRequest, honoured: frozenset[str]) -> None:
    refused = sorted(request.demands() - honoured)
    if refused:
        name = refused[0]
        param = "messages" if name in MEDIA else name
        raise UnsupportedParameter(f"This model does not support '{name}'.", param=param)


def _is_unwanted(name: str, honoured: frozenset[str] | None, unsupported: frozenset[str]) -> bool:
    kind = FIELD_CLASS.get(name)
    if kind == "sampling" and name in unsupported:
        return True
    return honoured is not None and name not in honoured and kind in {"semantic", "sampling", "hint"}


def _without(request: ChatRequest, names: Sequence[str]) -> ChatRequest:
    fields = {name: raw for name, raw in request.fields.items() if name not in names}
    return structs.replace(request, fields=fields, **{name: None for name in names if name in FIELD_CLASS})
