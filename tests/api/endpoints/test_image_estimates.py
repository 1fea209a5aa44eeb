"""A prompt's images are held as the upstreams of the model bill them; the most expensive one counts."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.billing.image_tokens import PATTERNS, image_rule
from gateway.catalog import Catalog, Model
from gateway.config.loader import parse
from gateway.config.settings import ImageFamily
from gateway.config.toml_reader import SettingsError
from tests.billing.test_token_estimate import image, png, sound, wav

SQUARE = 1024, 1024


def model(**settings: Any) -> Model:
    """The model `m` with those settings; `spare`, a Claude model, may be its fallback."""
    document = {
        "providers": {"p": {"plugin": "fake"}},
        "models": {
            "m": {"provider": "p", "free": True, **settings},
            "spare": {"provider": "p", "free": True, "model": "claude-sonnet-4-5"},
        },
    }
    return Catalog.build(parse(document)).models["m"]


def held(served: Model, *parts: dict[str, Any]) -> int:
    """Image tokens of a request with these parts."""
    endpoint = ChatEndpoint()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}]}).encode()
    request = endpoint.decode(body, "acme", None)  # type: ignore[arg-type]  # chat does not look at the settings
    return endpoint.quote(request, served, len(body)).prompt.in_image


BILLED = [
    ("gpt-4o", SQUARE, None, 765),
    ("gpt-4o", SQUARE, "low", 85),
    ("openai/gpt-4.1", SQUARE, None, 765),
    ("gpt-4o-mini", SQUARE, None, 2_833 + 4 * 5_667),
    ("gpt-4o-mini-2024-07-18", SQUARE, "low", 2_833),
    ("gpt-5", SQUARE, None, 70 + 4 * 140),
    ("o1", SQUARE, None, 75 + 4 * 150),
    ("o3-2025-04-16", SQUARE, None, 75 + 4 * 150),
    ("gpt-4.1-mini", SQUARE, None, 1_659),
    ("gpt-5-nano-2025-08-07", SQUARE, None, 2_520),
    ("o4-mini", (4000, 3000), None, 2_642),
    ("gpt-5-mini", SQUARE, "low", 1_659),
    ("claude-sonnet-4-5-20250929", (1000, 750), None, 1_000),
    ("us.anthropic.claude-3-5-haiku-20241022-v1:0", (4000, 3000), "low", 1_600),
    ("anthropic/claude-opus-4.7", (4000, 3000), None, 4_800),
    ("claude-opus-4-20250514", (4000, 3000), None, 1_600),
    ("gemini-2.5-flash", (384, 384), "low", 258),
    ("models/gemini-2.0-flash", (1536, 768), None, 516),
    ("gemini-3-pro-preview", (100, 100), "low", 1_120),
]


@pytest.mark.holds(
    "prices.md#estimates-4",
    "prices.md#estimates-9",
    "prices.md#estimates-10",
    "prices.md#estimates-11",
    "prices.md#estimates-12",
    "prices.md#estimates-13",
    "prices.md#estimates-14",
    "prices.md#estimates-15",
    "prices.md#estimates-16",
    "prices.md#estimates-17",
    "prices.md#estimates-19",
)
def test_image_counts_as_its_upstream_bills_it() -> None:
    found = {
        (name, size, detail): held(model(model=name), image(png(*size), detail)) for name, size, detail, _ in BILLED
    }
    assert found == {(name, size, detail): tokens for name, size, detail, tokens in BILLED}


@pytest.mark.holds("prices.md#estimates-8")
def test_most_expensive_upstream_of_the_model_counts() -> None:
    two = [{"provider": "p", "model": "gpt-4o"}, {"provider": "p", "model": "gpt-4o-mini"}]
    assert held(model(provider="", targets=two), image(png(*SQUARE))) == 25_501
    assert held(model(model="gpt-4o", fallbacks=["spare"]), image(png(*SQUARE))) == 1_399


@pytest.mark.holds("prices.md#estimates-17")
def test_unknown_upstream_counts_as_the_most_expensive_usual_one() -> None:
    assert held(model(model="house-model"), image(png(*SQUARE), "low")) == 1_399


@pytest.mark.parametrize("family", get_args(ImageFamily))
def test_each_family_of_the_setting_has_a_rule(family: str) -> None:
    assert image_rule(family) is not None


def test_setting_has_a_family_for_each_rule() -> None:
    assert {image_rule(family) for family in get_args(ImageFamily)} == {rule for _, rule in PATTERNS}


@pytest.mark.holds("prices.md#estimates-8")
def test_operator_names_the_model_whose_images_a_deployment_counts() -> None:
    assert held(model(model="deployment-7", images_like="gpt-4o"), image(png(*SQUARE))) == 765
    with pytest.raises(SettingsError, match=r"models\.m\.images_like"):
        model(images_like="no-such-family")


@pytest.mark.holds("prices.md#estimates-19")
@pytest.mark.parametrize(
    ("name", "tokens"),
    [("gpt-4o", 1_105), ("gpt-4o-mini", 36_835), ("claude-sonnet-4-5", 1_600), ("gpt-5-mini", 2_489)],
)
def test_image_of_unknown_size_counts_as_a_large_one(name: str, tokens: int) -> None:
    url = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert held(model(model=name), url) == tokens


@pytest.mark.holds("prices.md#estimates-18")
@pytest.mark.parametrize(
    ("name", "address", "tokens"),
    [
        ("gemini-2.5-pro", "https://www.youtube.com/watch?v=9hE5-98ZeCg", 262_144),
        ("gemini-2.5-pro", "https://youtu.be/9hE5-98ZeCg", 262_144),
        ("google/gemini-3-pro", "https://M.YouTube.com/watch?v=a.png", 262_144),
        ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/files/abc123", 262_144),
        ("gemini-2.5-pro", "https://example.com/photo.jpg?from=youtube.com", 6 * 258),
        ("gpt-4o", "https://www.youtube.com/watch?v=9hE5-98ZeCg", 1_105),
    ],
)
def test_video_or_file_that_gemini_fetches_counts_a_quarter_of_its_window(name: str, address: str, tokens: int) -> None:
    assert held(model(model=name), {"type": "image_url", "image_url": {"url": address}}) == tokens


@pytest.mark.holds("prices.md#audio-1")
def test_sound_for_gemini_counts_32_tokens_a_second() -> None:
    endpoint = ChatEndpoint()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [sound(wav(6))]}]}).encode()
    request = endpoint.decode(body, "acme", None)  # type: ignore[arg-type]  # chat does not look at the settings
    prompt = endpoint.quote(request, model(model="gemini-2.5-flash"), len(body)).prompt
    assert prompt.in_audio == pytest.approx(6 * 32, abs=2)
