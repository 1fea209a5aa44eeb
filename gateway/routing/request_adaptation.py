"""Request fields that a target does not support (docs/providers/matrix.md), on every endpoint.

`adapt(request, candidates, Chat, unknown_params=…)` prepares the request for each candidate. An unsupported semantic
field refuses the request. An unsupported sampling field or hint is dropped. An unknown field is dropped too, unless the
provider names it and the operator's setting allows it. The names of dropped fields go into `x-gateway-dropped-params`.
A provider names the known fields that it supports in `chat_fields`, `embedding_fields` and so on (None: all),
and unknown ones there or in `forwarded_fields`; "*" means any. Sharp edge: a refusal counts only if no candidate can
serve the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from msgspec import Raw, Struct, structs

from gateway.errors import BadRequest, GatewayError, UnsupportedParameter
from gateway.plugins.provider import CAPABILITIES, Chat, Provider
from gateway.routing.router import Candidate
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.forbidden import header_name
from gateway.schemas.native_request import RESPONSES, NativeRequest
from gateway.schemas.request_fields import RequestFields

R = TypeVar("R", bound=RequestFields)

CACHE_KEY = "prompt_cache_key"
NO_FIELDS: frozenset[str] = frozenset()
NAMED_HINTS = frozenset({"prompt_cache_options"})
UNKNOWN = "*"  # among the fields that a provider supports: fields that the wire schema does not define


def _fields_attribute(capability: type) -> str:
    """The attribute in which a provider names the fields it supports: the one of the class that ends so."""
    [name] = (name for name in capability.__annotations__ if name.endswith("_fields"))
    return name


#: Reads the fields that a provider supports, by capability.
HONOURED: Mapping[type, Callable[[Provider], frozenset[str] | None]] = MappingProxyType(
    {capability: attrgetter(_fields_attribute(capability)) for capability in CAPABILITIES.values()}
)


class Adapted(Struct, Generic[R]):
    """A request as one candidate receives it, and the names of the fields that were dropped."""

    candidate: Candidate
    request: R
    dropped: tuple[str, ...]
    if_refused: Callable[[GatewayError], Adapted[R] | None] | None = None  # what to send once if that is refused
    if_accepted: Callable[[], None] | None = None  # of what `if_refused` has returned: called if it is answered


def adapt(
    request: R,
    candidates: list[Candidate],
    capability: type,
    *,
    unknown_params: str,
    check: Callable[[R, Candidate], None] | None = None,
    cache_key: str = "",
) -> list[Adapted[R]]:
    """The candidates that support the request, each with its version of it; raises BadRequest when none does.

    `check` raises a BadRequest for limits of a provider that are not fields: a format, a form of the input.
    `cache_key` is the name of the session for upstreams that take one; empty for a call without a session.
    """
    adapted: list[Adapted[R]] = []
    refusal: BadRequest | None = None
    if unknown_params == "reject":
        request.refuse_unknown()
    try:
        for candidate in candidates:
            try:
                if check is not None:
                    check(request, candidate)
                honoured, refused = HONOURED[capability](candidate.provider), _refused(candidate, capability)
                adapted.append(_adapt_one(request, candidate, honoured, refused, unknown_params))
            except BadRequest as error:
                refusal = refusal or error
        if not adapted and refusal is not None:
            raise refusal
        return [with_cache_key(one, cache_key) for one in adapted] if cache_key else adapted
    finally:
        del refusal  # its traceback refers to this frame, a cycle that would keep the request in memory


def with_cache_key(adapted: Adapted[R], key: str) -> Adapted[R]:
    """The request with the name of its session, if the provider takes one and the caller has sent none."""
    request, provider = adapted.request, adapted.candidate.provider
    if not isinstance(request, ChatRequest) or not isinstance(provider, Chat) or not provider.takes_cache_key:
        return adapted
    native = request.native
    if request.prompt_cache_key is not None or (native is not None and native.dialect != RESPONSES):
        return adapted
    field = {CACHE_KEY: Raw(b'"%b"' % key.encode())}
    if native is not None:
        if CACHE_KEY not in native.fields:
            native = structs.replace(native, fields={**native.fields, **field})
        named = structs.replace(request, native=native)
    else:
        named = structs.replace(request, fields={**request.fields, **field}, prompt_cache_key=key)
    return structs.replace(adapted, request=named)


def _adapt_native(request: R, candidate: Candidate, native: NativeRequest, unknown_params: str) -> Adapted[R] | None:
    """The request for a candidate that takes the dialect in which it was sent; None for any other candidate."""
    provider = candidate.provider
    accepted = provider.accepted_fields(native.dialect, candidate.target) if isinstance(provider, Chat) else None
    if accepted is None:
        return None
    if candidate.model.unsupported_params:
        accepted = structs.replace(accepted, fields=accepted.fields - candidate.model.unsupported_params)
    if native.unknown and unknown_params == "drop":
        accepted = structs.replace(accepted, fields=accepted.fields.difference(native.unknown, UNKNOWN))
    left = native.accepted_by(accepted).with_tool_limit(accepted, candidate.model.vendor_tool_uses)
    return Adapted(candidate, structs.replace(request, native=left), tuple(map(header_name, left.dropped)))


def _refused(candidate: Candidate, capability: type) -> frozenset[str]:
    """The sampling fields that the candidate's model refuses."""
    return cast("Chat", candidate.provider).refused_sampling(candidate.target) if capability is Chat else NO_FIELDS


def _adapt_one(
    request: R,
    candidate: Candidate,
    honoured: frozenset[str] | None,
    refused_sampling: frozenset[str],
    unknown_params: str,
) -> Adapted[R]:
    native: NativeRequest | None = getattr(request, "native", None)
    if native is not None:
        adapted = _adapt_native(request, candidate, native, unknown_params)
        if adapted is not None:
            return adapted
        if native.only_native:
            text = f"This model does not support this value of '{native.only_native}'."
            raise UnsupportedParameter(text, param=native.only_native)
    key: str | None = getattr(request, CACHE_KEY, None)
    if key is not None and not _can_send(key, candidate):
        request = request.drop(CACHE_KEY)
    marks: frozenset[str] = getattr(request, "cache_marks", NO_FIELDS)
    if marks:
        request = _with_lacking_marks(request, marks, candidate)
    unsupported = candidate.model.unsupported_params | refused_sampling
    if honoured is None and not unsupported and not request.extra:
        return Adapted(candidate, request, request.dropped)
    if honoured is not None:
        refused = sorted(request.demands() - honoured)
        if refused:
            raise request.unsupported(refused[0])
    classes = request.field_classes
    unwanted = [
        name for name in request.present_fields() if _is_unwanted(name, classes.get(name), honoured, unsupported)
    ]
    if request.extra:
        unwanted += _unforwarded(request, candidate.provider, honoured or frozenset(), unknown_params)
    if not unwanted:
        return Adapted(candidate, request, request.dropped)
    # Dropped hints are not reported, but for those that change what the prompt costs.
    named = (name for name in unwanted if classes.get(name) != "hint" or name in NAMED_HINTS)
    return Adapted(candidate, request.without(unwanted), (*request.dropped, *map(header_name, named)))


def _with_lacking_marks(request: R, marks: frozenset[str], candidate: Candidate) -> R:
    """The request that names the marks for a prompt cache which do not reach the candidate's upstream."""
    taken = cast("Chat", candidate.provider).cache_marks(cast("ChatRequest", request), candidate.target)
    return structs.replace(request, dropped=(*request.dropped, *sorted(marks - taken))) if marks - taken else request


def _can_send(key: str, candidate: Candidate) -> bool:
    """Whether the candidate can send this name of the caller's session."""
    return not isinstance(candidate.provider, Chat) or candidate.provider.can_send_cache_key(key)


def _unforwarded(
    request: RequestFields, provider: Provider, honoured: frozenset[str], unknown_params: str
) -> Iterable[str]:
    """The unknown fields that the provider does not get."""
    if unknown_params == "drop":
        return request.extra
    forwarded = provider.forwarded_fields | honoured  # a dialect may have its own fields
    return () if UNKNOWN in forwarded else [name for name in request.extra if name not in forwarded]


def _is_unwanted(name: str, kind: str | None, honoured: frozenset[str] | None, unsupported: frozenset[str]) -> bool:
    if kind == "sampling" and name in unsupported:
        return True
    return honoured is not None and name not in honoured and kind in {"semantic", "sampling", "hint"}
