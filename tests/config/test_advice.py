"""Warnings about settings that are valid and probably not meant."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.config.loader import demo_settings, load, parse

ROOT = Path(__file__).parents[2]
HEAD = '[providers.p]\nplugin = "openai"\nbase_url = "https://api.example.com/v1"\n'
MODEL = '[models.{name}]\nprovider = "p"\n'


def warnings_of(text: str) -> tuple[str, ...]:
    return parse(tomllib.loads(text, parse_float=Decimal), file="g.toml").warnings


def priced(price: str) -> tuple[str, ...]:
    return warnings_of(HEAD + MODEL.format(name="m") + f"price = {price}\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gateway.internal"])
def test_side_port_that_others_reach_is_named(host: str) -> None:
    (warning,) = warnings_of(f'[metrics]\nhost = "{host}"\n')
    assert warning.startswith("metrics.host: the side port has no authentication")


def test_console_that_others_reach_is_named_unless_it_is_off() -> None:
    (warning,) = warnings_of('[console]\nhost = "0.0.0.0"\n')
    assert warning.startswith("console.host: server.tls_cert is not set")
    assert warnings_of('[server]\ntls_cert = "a"\ntls_key = "b"\n[console]\nhost = "0.0.0.0"\n') == ()
    assert warnings_of('[console]\nhost = "0.0.0.0"\nenabled = false\n') == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_side_port_on_loopback_is_not_named(host: str) -> None:
    assert warnings_of(f'[metrics]\nhost = "{host}"\n') == ()


def test_upstream_without_encryption_is_named_unless_it_is_on_this_machine() -> None:
    found = warnings_of(
        '[providers.far]\nplugin = "openai"\nbase_url = "http://vllm.example:8000/v1"\n'
        '[providers.near]\nplugin = "openai"\nbase_url = "http://127.0.0.1:8000/v1"\n'
        '[providers.two]\nplugin = "azure"\n'
        'credentials = [{ endpoint = "https://a.example" }, { endpoint = "HTTP://b.example" }]\n'
    )
    assert [text.partition(":")[0] for text in found] == [
        "providers.far.base_url",
        "providers.two.credentials[1].endpoint",
    ]


@pytest.mark.parametrize(
    ("price", "key"),
    [
        ("{ input = 0.00000025, output = 2 }", "models.m.price.input"),
        ("{ input = 0.25, output = 2000000 }", "models.m.price.output"),
        ("{ input = 1, output = 2, per_request = 2500 }", "models.m.price.per_request"),
        ('{ per_image = { "1024x1024" = 40000 }, input = 1, output = 1 }', "models.m.price.per_image.1024x1024"),
        (
            "{ input = 1, output = 2, tiers = [{ above_input_tokens = 9, input = 1e-6 }] }",
            "models.m.price.tiers[0]",
        ),
    ],
)
def test_price_that_is_off_by_a_million_is_named(price: str, key: str) -> None:
    (warning,) = priced(price)
    assert warning.startswith(key)


@pytest.mark.parametrize(
    "price",
    [
        "{ input = 0.01, output = 600 }",
        "{ input = 0, output = 2 }",
        '{ input = 1600000, output = 8000000, currency = "IDR" }',
        "{ input = 1, output = 2, per_second_in = 0.0001 }",
    ],
)
def test_usual_price_is_not_named(price: str) -> None:
    assert priced(price) == ()


def test_cycle_of_fallbacks_is_named_once() -> None:
    models = {"a": "b", "b": "c", "c": "nick", "d": "a"}
    text = HEAD + "".join(
        MODEL.format(name=name) + f'free = true\nfallbacks = ["{fallback}"]\n' for name, fallback in models.items()
    )
    found = warnings_of(text.replace("[models.a]\n", '[models.a]\naliases = ["nick"]\n'))
    assert found == ("models.a.fallbacks: a → b → c → a is a cycle; fallbacks of a fallback are not tried",)


def test_shipped_configurations_have_no_warning() -> None:
    assert demo_settings().warnings == ()
    assert load(ROOT / "conf" / "gateway.toml").warnings == ()
