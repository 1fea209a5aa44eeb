"""Settings: what a file may say, and how each fault in it is named."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from gateway.config.loader import DEMO_PORTS_VARIABLE, demo_settings, find_config, load, parse
from gateway.config.secret import Secret
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError

ROOT = Path(__file__).parents[2]

GOOD = """
[providers.openai]
plugin = "openai"
base_url = "https://api.openai.com/v1"
api_key = "env:OPENAI_API_KEY"
temperature = 0.5

[models."gpt-5-mini"]
provider = "openai"
model = "gpt-5-mini-2026"
price = { input = 0.25, cached_input = 0.025, output = "2.000000001" }

[models.best]
targets = [{ provider = "openai", model = "gpt-5", weight = 3 }, { provider = "openai" }]
fallbacks = ["gpt-5-mini"]
aliases = ["top"]
groups = ["default", "vip"]
free = true

[groups.vip]
rpm = 600
"""


def settings_of(text: str, *, demo: bool = False) -> Settings:
    return parse(tomllib.loads(text, parse_float=Decimal), file="gateway.toml", demo=demo)


def faults_of(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings_of(text)
    return [str(fault) for fault in caught.value.problems]


def model(rest: str) -> str:
    """A configuration that is good but for the lines added to its one model."""
    return f'[providers.p]\nplugin = "openai"\n[models.m]\n{rest}\n'


# What is read --------------------------------------------------------------------------------------------------------


def test_valid_file_becomes_settings() -> None:
    settings = settings_of(GOOD)
    assert settings.providers["openai"].plugin == "openai"
    assert settings.models["gpt-5-mini"].model == "gpt-5-mini-2026"
    assert [(t.model, t.weight) for t in settings.models["best"].targets] == [("gpt-5", 3), ("", 1)]
    assert settings.groups["vip"].rpm == 600


def test_empty_file_has_every_default() -> None:
    settings = settings_of("")
    assert (settings.server.host, settings.server.port, settings.server.workers) == ("127.0.0.1", 8080, 1)
    assert (settings.metrics.host, settings.metrics.port) == ("127.0.0.1", 9090)
    assert settings.pepper is None


def test_group_default_exists_without_configuration() -> None:
    assert settings_of("").groups["default"].rpm is None


@pytest.mark.holds("prices.md#prices-1")
def test_amounts_are_exact_nano_units() -> None:
    price = settings_of(GOOD).models["gpt-5-mini"].price
    assert price is not None
    assert price[0].amounts() == {"input": 250_000_000, "cached_input": 25_000_000, "output": 2_000_000_001}


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0.1", 100_000_000), ("1", 10**9), ('"0.000000001"', 1), ("1e-3", 10**6), ("0", 0), ("1_000", 10**12)],
)
def test_amount_may_be_float_integer_or_text(text: str, nano: int) -> None:
    price = settings_of(model(f'provider = "p"\nprice = {{ input = {text}, output = 1 }}')).models["m"].price
    assert price is not None
    assert price[0].input == nano


def test_price_with_every_key_is_read() -> None:
    price = (
        settings_of(
            model(
                'provider = "p"\n[models.m.price]\ninput = 1\noutput = 2\n'
                'per_image = { "1024x1024" = { hd = 0.08 }, "*" = 0.04 }\n'
                "tiers = [{ above_input_tokens = 128000, input = 2 }, { above_input_tokens = 200000, input = 3 }]\n"
                "service_tier_multiplier = { flex = 0.5, priority = 2 }\n"
                'currency = "USD"\neffective_from = 2026-11-01\n'
            )
        )
        .models["m"]
        .price
    )
    assert price is not None
    assert price[0].per_image == {"1024x1024": {"hd": 80_000_000}, "*": {"*": 40_000_000}}
    assert [tier.above_input_tokens for tier in price[0].tiers] == [128_000, 200_000]
    assert price[0].service_tier_multiplier["flex"].as_integer_ratio() == (1, 2)
    assert price[0].effective_from == "2026-11-01"


def test_provider_options_keep_their_values_with_floats_as_floats() -> None:
    options = settings_of(GOOD).providers["openai"].options
    assert options == {"base_url": "https://api.openai.com/v1", "api_key": "env:OPENAI_API_KEY", "temperature": 0.5}
    assert isinstance(options["temperature"], float)


def test_dates_may_be_toml_dates_text_or_unix_seconds() -> None:
    read = settings_of(model('provider = "p"\nfree = true\ncreated = 2026-11-21\nshutdown_date = "2027-01-31"'))
    assert read.models["m"].created == 1_795_219_200
    assert read.models["m"].shutdown_date == "2027-01-31"
    assert type(read.models["m"].created) is int  # they go onto the wire, and encoders take no subclasses
    assert type(read.models["m"].shutdown_date) is str


def test_relative_paths_are_resolved_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "pep").write_text("a pepper of the right length")
    (folder / "gateway.toml").write_text('[store]\ndata_dir = "var"\npepper = "file:pep"\n')
    monkeypatch.chdir(tmp_path)
    settings = load(folder / "gateway.toml")
    assert settings.data_dir == folder / "var"
    assert settings.pepper is not None
    assert settings.pepper.reveal() == "a pepper of the right length"


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        settings_of("").server.port = 1  # type: ignore[misc]


def test_demo_settings_need_no_file(tmp_path: Path) -> None:
    settings = demo_settings(tmp_path)
    assert settings.data_dir == tmp_path
    assert {provider.plugin for provider in settings.providers.values()} == {"fake"}
    assert [name for name, model in settings.models.items() if model.price is None] == ["fake-moderation"]
    assert all(model.groups == tuple(settings.groups) == ("default", "partner") for model in settings.models.values())
    assert settings.server.host == settings.metrics.host == settings.console.host == "127.0.0.1"
    assert settings.is_demo


def test_ports_of_the_demo_are_those_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEMO_PORTS_VARIABLE, raising=False)
    settings = demo_settings()
    assert (settings.server.port, settings.console.port, settings.metrics.port) == (8080, 8081, 9090)
    monkeypatch.setenv(DEMO_PORTS_VARIABLE, "9000,9001,9002")
    settings = demo_settings()
    assert (settings.server.port, settings.console.port, settings.metrics.port) == (9000, 9001, 9002)
    for text in ("9000", "9000,9001,70000", "a,b,c"):
        monkeypatch.setenv(DEMO_PORTS_VARIABLE, text)
        with pytest.raises(SettingsError, match="port"):
            demo_settings()


def test_configuration_of_the_repository_loads() -> None:
    assert "gpt-5-mini" in load(ROOT / "conf" / "gateway.toml").models


# Which file ----------------------------------------------------------------------------------------------------------


def test_configuration_is_found_by_option_environment_and_default_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    (tmp_path / "gateway.toml").touch()
    assert find_config() == Path("gateway.toml")
    monkeypatch.setenv("GATEWAY_CONFIG", "/from/environment.toml")
    assert find_config() == Path("/from/environment.toml")
    assert find_config("named.toml") == Path("named.toml")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"a = \xff", "not UTF-8"),
        (b"[server\n", "not valid TOML: .*line 1"),
        (b"a = 1\na = 2\n", "not valid TOML"),
        (b"a = " + b"9" * 5000, "not valid TOML"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_unreadable_file_is_one_error_that_names_it(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "gateway.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=reason) as caught:
        load(path)
    assert [fault.file for fault in caught.value.problems] == [str(path)]


# Faults --------------------------------------------------------------------------------------------------------------

FAULTS = [
    ("sever = 1", 'sever: unknown key; nearest: "server"'),
    ("[server]\nprot = 1", 'server.prot: unknown key; nearest: "port"'),
    ("[server]\nport = 'x'", "server.port: expected int, got str"),
    ("[server]\nport = 70000", "server.port: expected int <= 65535"),
    ("[server]\nport = 80.5", "server.port: expected int, got float"),
    ("[server]\nworkers = true", "server.workers: expected int, got bool"),
    ("[server.limits]\nkeepalive_timeout = inf", "server.limits.keepalive_timeout: expected float <= 86400.0"),
    ("[server.limits]\nkeepalive_timeout = nan", "server.limits.keepalive_timeout: expected float > 0.0"),
    ("[server]\nunknown_params = 'keep'", 'server.unknown_params: expected one of "forward", "drop", "reject"'),
    ("[server.limits]\nunknown_model_status = 402", "server.limits.unknown_model_status: expected one of 403, 404"),
    ("[server]\nmax_json_body = 9", "server.max_json_body: belongs to [server.limits]"),
    ("[server.limits]\nworkers = 2", "server.limits.workers: belongs to [server]"),
    ("[server]\nmax_body = 9", 'server.max_body: unknown key; nearest: "limits.max_bodies"'),
    ("[server.limits]\nmax_body = 9", 'server.limits.max_body: unknown key; nearest: "max_bodies"'),
    ("[server]\nidle_timeout = 5", 'server.idle_timeout: unknown key; nearest: "limits.write_timeout"'),
    ("[server]\ncost_header = true", 'server.cost_header: unknown key; nearest: "response_headers"'),
    ("[server]\nlimits = 1", "server.limits: expected a table, got an integer"),
    ("[server.limits]\nmax_bodies = 2048", "server.limits.max_bodies: it is smaller than max_account_bodies"),
    ("[server]\ndebug_headers = true", 'server.debug_headers: unknown key; nearest: "response_headers"'),
    ("[server]\nresponse_headers = ['price']", "server.response_headers[0]: expected one of"),
    ("[server]\nresponse_headers = 'cost'", "server.response_headers: expected array, got str"),
    ("server = 1", "server: expected a table, got an integer"),
    ("[metrics]\nport = 8080", "metrics.port: port 8080 is [server]'s already"),
    ("[console]\nport = 8080", "console.port: port 8080 is [server]'s already"),
    ("[console]\nport = 9090", "console.port: port 9090 is [metrics]'s already"),
    ("[store]\npepper = 'pepper-in-the-file'", "store.pepper: a secret is given as env:NAME or file:PATH"),
    ("[store]\nurl = 'http://u:secret@h'", "store.url: expected one of redis://, rediss://"),
    ("[providers.a]\nbase_url = 'x'", "providers.a.plugin: missing"),
    ("[providers.'A b']\nplugin = 'openai'", 'providers."A b": a name has 1 to 63'),
    ("[groups.g]\nrpm = 0", "groups.g.rpm: expected int >= 1"),
    ("[groups.G]", "groups.G: a name has 1 to 63"),
    ("[plugins]\ndisabled = ['a', 1]", "plugins.disabled[1]: expected str, got int"),
    (model("free = true"), "models.m.provider: missing: name a provider, or targets"),
    (model("provider = 'q'\nfree = true"), "models.m.provider: no provider is named 'q'; nearest: \"p\""),
    (
        model("targets = [{ provider = 'p' }, { provider = 'q' }]\nfree = true"),
        "models.m.targets[1].provider: no provider is named 'q'; nearest: \"p\"",
    ),
    (
        model("provider = 'p'\ntargets = [{ provider = 'p' }]\nfree = true"),
        "models.m.provider: provider and targets exclude each other",
    ),
    (
        model("targets = [{ provider = 'p', wieght = 2 }]\nfree = true"),
        'models.m.targets[0].wieght: unknown key; nearest: "weight"',
    ),
    (model("provider = 'p'"), "models.m.price: missing: a model has a price, or says free = true"),
    (
        model("provider = 'p'\nfree = true\nprice = { input = 1, output = 1 }"),
        "models.m.price: a price and free = true",
    ),
    (model("provider = 'p'\nprice = { input = 0, output = 0 }"), "models.m.price: every amount is zero"),
    (model("provider = 'p'\nprice = { input = 1 }"), "models.m.price.output: missing, while input has a price"),
    (model("provider = 'p'\nprice = { input = -1, output = 1 }"), "models.m.price.input: -1 is negative"),
    (
        model("provider = 'p'\nprice = { input = 0.0000000001, output = 1 }"),
        "models.m.price.input: '0.0000000001' is not a decimal amount with at most nine places",
    ),
    (model("provider = 'p'\nprice = { input = nan, output = 1 }"), "models.m.price.input: 'NaN' is not a decimal"),
    (model("provider = 'p'\nprice = { input = true, output = 1 }"), "models.m.price.input: expected a decimal amount"),
    (
        model("provider = 'p'\nprice = { input = 1, outptu = 2, output = 1 }"),
        'models.m.price.outptu: unknown key; nearest: "output"',
    ),
    (
        model(
            "provider = 'p'\nprice = { input = 1, output = 1,"
            " tiers = [{ above_input_tokens = 2, input = 2 }, { above_input_tokens = 1, input = 2 }] }"
        ),
        "models.m.price.tiers[1].above_input_tokens: tiers stand in rising order",
    ),
    (
        model("provider = 'p'\nprice = { input = 1, output = 1, service_tier_multiplier = { flex = 0 } }"),
        "models.m.price.service_tier_multiplier.flex: expected a number above 0",
    ),
    (
        model("provider = 'p'\nfree = true\ngroups = ['defualt']"),
        "models.m.groups[0]: no group is named 'defualt'; nearest: \"default\"",
    ),
    (
        model("provider = 'p'\nfree = true\nfallbacks = ['n']\n[models.nn]\nprovider = 'p'\nfree = true"),
        "models.m.fallbacks[0]: no model is named 'n'; nearest: \"nn\"",
    ),
    (
        model("provider = 'p'\nendpoints = ['images']\nprice = { input = 1 }"),
        "models.m.price: images would cost nothing: name one of image_output, output, per_image, or per_request",
    ),
    (model("provider = 'p'\nfree = true\nfallbacks = ['m']"), "models.m.fallbacks: a model cannot fall back on itself"),
    (model("provider = 'p'\nfree = true\naliases = ['m']"), "models.m.aliases[0]: m is the name of a model"),
    (model("provider = 'p'\nfree = true\naliases = ['a', 'a']"), "models.m.aliases[1]: a is an alias of m already"),
    (model("provider = 'p'\nfree = true\nshutdown_date = 5"), "models.m.shutdown_date: expected a date such as"),
    (model("provider = 'p'\nfree = true\ncreated = '2026'"), "models.m.created: expected a date such as"),
    (model("provider = 'p'\nfree = true\ntoken_factor = 0"), "models.m.token_factor: expected float > 0.0"),
    (model("provider = 'p'\nfree = true\nendpoints = ['chatt']"), 'models.m.endpoints[0]: expected one of "chat"'),
    (model("provider = 'p'\nfree = true\ncontext_window = 0"), "models.m.context_window: expected int >= 1"),
    (model("provider = 'p'\nfree = true\nhold = 'lax'"), 'models.m.hold: expected one of "strict", "clamp"'),
    ("[models.'gpt 5.1 ']\nprovider = 1", 'models."gpt 5.1 ".provider: expected str, got int'),
]


@pytest.mark.parametrize(("text", "fault"), FAULTS, ids=[fault.split(":")[0] for _, fault in FAULTS])
def test_each_error_names_file_key_and_reason(text: str, fault: str) -> None:
    found = faults_of(text)
    assert any(line.startswith(f"gateway.toml: {fault}") for line in found), found


@pytest.mark.parametrize(("text", "fault"), FAULTS, ids=[fault.split(":")[0] for _, fault in FAULTS])
def test_one_error_causes_no_further_errors(text: str, fault: str) -> None:
    # A name with a blank at its end is two things at once, and so is the model that nobody serves.
    assert len(faults_of(text)) == (2 if "gpt 5.1" in text else 1)


def test_all_errors_of_a_file_are_found_at_once() -> None:
    found = faults_of(
        "zz = 1\n[server]\nprot = 1\nworkers = 0\n[groups.g]\nrpm = 0\n"
        + model("provider = 'q'\nprice = { input = -1, output = -2 }")
        + "[models.n]\nprovider = 'q'\n"
    )
    keys = [line.split(": ")[1] for line in found]
    assert sorted(keys) == [
        "groups.g.rpm",
        "models.m.price.input",
        "models.m.price.output",
        "models.n.price",
        "models.n.provider",
        "server.prot",
        "server.workers",
        "zz",
    ]


def test_errors_never_repeat_a_url_or_a_literal_secret() -> None:
    text = "[store]\nurl = 'http://u:canary@h'\npepper = 'canary'\n"
    assert not any("canary" in line for line in faults_of(text))


# Provider options ----------------------------------------------------------------------------------------------------


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As a provider declares them."""

    base_url: str
    api_key: Secret | None = None
    temperature: float = 0.0
    headers: dict[str, str] = {}


def test_provider_options_decode_as_the_plugin_declares() -> None:
    options = settings_of(GOOD).provider_options("openai", Options)
    assert options.base_url == "https://api.openai.com/v1"
    assert options.api_key is not None
    assert options.api_key.reference == "env:OPENAI_API_KEY"


def test_errors_in_provider_options_are_named_like_others() -> None:
    settings = settings_of(
        "[providers.p]\nplugin = 'openai'\nbase_ulr = 'x'\napi_key = 'canary'\nheaders = { a = 1 }\n"
    )
    with pytest.raises(SettingsError) as caught:
        settings.provider_options("p", Options)
    assert [str(fault) for fault in caught.value.problems] == [
        'gateway.toml: providers.p.base_ulr: unknown key; nearest: "base_url"',
        "gateway.toml: providers.p.api_key: a secret is given as env:NAME or file:PATH, not as a literal",
        "gateway.toml: providers.p.headers.a: expected str, got int",
        "gateway.toml: providers.p.base_url: missing",
    ]


def test_literal_secret_is_accepted_in_demo_mode_only() -> None:
    text = "[providers.p]\nplugin = 'openai'\nbase_url = 'x'\napi_key = 'canary'\n"
    options = settings_of(text, demo=True).provider_options("p", Options)
    assert options.api_key is not None
    assert options.api_key.reveal() == "canary"
    with pytest.raises(SettingsError):
        settings_of(text).provider_options("p", Options)
