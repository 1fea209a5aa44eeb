"""What each target sees of a request, by the class of each field and the operator's switch, on every endpoint."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct

from gateway import Chat, Embeddings, Images, Provider
from gateway.errors import BadRequest, InvalidValue, UnknownParameter, UnsupportedParameter
from gateway.plugins.provider import CAPABILITIES
from gateway.routing.request_adaptation import HONOURED, Adapted, adapt
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.embeddings import EmbeddingRequest, decode_embedding_request
from gateway.schemas.images import ImageRequest, decode_image_request
from gateway.testing.sent_cases import TOOL


class Place(Struct):
    """What fitting looks at of a candidate."""

    provider: Any
    model: Any
    target: Any = None


class Honours(Struct):
    """A provider that honours those fields on every endpoint."""

    chat_fields: Any = None
    embedding_fields: Any = None
    image_fields: Any = None
    forwarded_fields: frozenset[str] = frozenset()
    sampling: frozenset[str] = frozenset()  # that its models refuse

    def refused_sampling(self, target: Any) -> frozenset[str]:
        return self.sampling


class Without(Struct):
    """A model without those sampling fields."""

    unsupported_params: frozenset[str] = frozenset()


def place(*fields: str, unsupported: tuple[str, ...] = (), forwarded: tuple[str, ...] = ()) -> Any:
    """A candidate that honours those fields; all known ones where none is named."""
    honoured = frozenset(fields) or None
    return Place(Honours(honoured, honoured, honoured, frozenset(forwarded)), Without(frozenset(unsupported)))


def texts(**fields: Any) -> EmbeddingRequest:
    return decode_embedding_request(msgspec.json.encode({"model": "m", "input": "a", **fields}))


def picture(**fields: Any) -> ImageRequest:
    return decode_image_request(msgspec.json.encode({"model": "m", "prompt": "p", **fields}))


def talk(**fields: Any) -> ChatRequest:
    messages = [{"role": "user", "content": "Hi"}]
    return decode_chat_request(msgspec.json.encode({"model": "m", "messages": messages, **fields}))


def adapted(request: Any, *places: Any, unknown: str = "forward", check: Any = None) -> list[Adapted[Any]]:
    kinds: dict[type, type] = {EmbeddingRequest: Embeddings, ImageRequest: Images, ChatRequest: Chat}
    return adapt(request, list(places), kinds[type(request)], unknown_params=unknown, check=check)


def test_every_capability_has_a_check_of_the_fields_it_honours() -> None:
    assert set(HONOURED) == set(CAPABILITIES.values())
    for kind, honoured in HONOURED.items():
        assert honoured(kind) == frozenset()  # type: ignore[arg-type]


class Undeclared(Provider, Chat, Embeddings, Images):
    """A plugin that says nothing about fields."""

    stream_chat = embed = generate_images = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("request_", "param"), [(texts(dimensions=8), "dimensions"), (picture(n=2), "n"), (talk(tools=[TOOL]), "tools")]
)
def test_semantic_field_is_refused_by_a_provider_that_declares_nothing(request_: Any, param: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        adapted(request_, Place(Undeclared(None, None), Without()))  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unsupported_parameter", param)


def test_sampling_field_is_dropped_for_a_provider_that_declares_nothing() -> None:
    [only] = adapted(talk(temperature=0.3), Place(Undeclared(None, None), Without()))  # type: ignore[arg-type]
    assert only.dropped == ("temperature",) and only.request.temperature is None


def test_provider_that_honours_everything_gets_the_request_itself() -> None:
    request = texts(dimensions=8, user="u")
    [only] = adapted(request, place())
    assert only.request is request
    request = texts(dimensions=8, odd=1)
    [only] = adapted(request, place(forwarded=("odd",)))
    assert only.request is request


@pytest.mark.parametrize(
    ("request_", "param"),
    [(texts(dimensions=8), "dimensions"), (picture(n=2), "n"), (picture(quality="hd"), "quality"), (talk(n=2), "n")],
)
def test_semantic_field_that_no_target_supports_is_refused(request_: Any, param: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        adapted(request_, place("other"))
    assert caught.value.param == param


def test_semantic_field_picks_those_that_honour_it() -> None:
    plain, able = place("other"), place("dimensions")
    assert [one.candidate for one in adapted(texts(dimensions=8), plain, able)] == [able]


def test_hints_are_dropped_silently_and_unknown_fields_are_named() -> None:
    [only] = adapted(picture(user="u", style="vivid", odd=1), place("other"))
    assert only.dropped == ("odd",)
    assert only.request.fields.keys() == {"model", "prompt"}
    assert (only.request.user, only.request.style) == (None, None)


def test_unsupported_fields_with_default_values_are_dropped_without_a_refusal() -> None:
    [only] = adapted(picture(n=1, size="auto"), place("other"))
    assert only.request.fields.keys() == {"model", "prompt"}


def test_sampling_fields_the_model_lacks_are_dropped_and_named() -> None:
    [only] = adapted(talk(temperature=1, top_p=1), place(unsupported=("temperature",)))
    assert only.dropped == ("temperature",)
    assert only.request.temperature is None
    assert only.request.top_p == 1
    assert only.request.fields.get("temperature", UNSET) is UNSET


def test_sampling_fields_the_providers_model_refuses_are_dropped_and_named() -> None:
    own = place()
    own.provider.sampling = frozenset({"temperature", "top_p"})
    [only] = adapted(talk(temperature=1, seed=1), own)
    assert only.dropped == ("temperature",)
    assert (only.request.temperature, only.request.seed) == (None, 1)


def test_setting_decides_whether_unknown_fields_are_refused() -> None:
    own = place(forwarded=("odd",))
    assert adapted(texts(odd=1), own)[0].dropped == ()
    assert adapted(texts(odd=1), own, unknown="drop")[0].dropped == ("odd",)
    for request in (texts(odd=1), picture(odd=1), talk(odd=1), texts(api_key="sk-evil")):
        with pytest.raises(UnknownParameter):
            adapted(request, place(), unknown="reject")


@pytest.mark.parametrize("names", [(), ("min_p",)])
def test_unknown_field_that_the_provider_does_not_name_is_dropped_and_named(names: tuple[str, ...]) -> None:
    [only] = adapted(talk(odd=1, min_p=0.1), place(forwarded=names))
    assert set(only.dropped) == {"odd", "min_p"} - set(names)
    assert only.request.fields.keys() == {"model", "messages", *names}
    assert only.request.extra == names


def test_any_unknown_field_is_forwarded_to_a_provider_that_names_all_with_an_asterisk() -> None:
    for one in (place(forwarded=("*",)), place("*")):
        assert adapted(texts(odd=1), one)[0].dropped == ()


def test_endpoint_check_excludes_a_candidate_or_refuses_the_request() -> None:
    good, bad = place(), place("other")

    def check(request: Any, candidate: Any) -> None:
        if candidate is bad:
            raise InvalidValue("not here", param="input")

    assert [one.candidate for one in adapted(texts(), bad, good, check=check)] == [good]
    with pytest.raises(BadRequest) as caught:
        adapted(texts(), bad, check=check)
    assert caught.value.param == "input"


@pytest.mark.parametrize("unknown", ["forward", "drop", "reject"])
def test_known_field_that_the_gateway_dropped_is_named_and_not_unknown(unknown: str) -> None:
    request = talk(service_tier="scale", seed=1).drop("service_tier")
    [only] = adapted(request, place("seed"), unknown=unknown)
    assert (only.dropped, only.request.fields.keys() & {"service_tier", "seed"}) == (("service_tier",), {"seed"})
    assert only.request.service_tier is None
