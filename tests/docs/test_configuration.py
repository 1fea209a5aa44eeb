"""docs/configuration.md and conf/gateway.toml hold every setting, and nothing that is none."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT, Struct, structs

from gateway.amounts import format_amount
from gateway.config import settings as tree
from gateway.config.loader import parse
from gateway.config.toml_reader import SettingsError
from gateway.config.values import Factor, PartFactor

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
CONF = (ROOT / "conf" / "gateway.toml").read_text(encoding="utf-8")

SECTIONS: dict[str, type[Struct]] = {
    "[server]": tree.ServerSettings,
    "[server.limits]": tree.ServerLimitSettings,
    "[server.websocket]": tree.WebSocketSettings,
    "[metrics]": tree.MetricsSettings,
    "[store]": tree.StoreSettings,
    "[database]": tree.DatabaseSettings,
    "[console]": tree.ConsoleSettings,
    "[oidc.NAME]": tree.OidcSettings,
    "grants": tree.GrantSettings,
    "[mail]": tree.MailSettings,
    "[notify]": tree.NotifySettings,
    "[providers.NAME]": tree.ProviderSettings,
    '[models."NAME"]': tree.ModelSettings,
    "targets": tree.TargetSettings,
    "price": tree.PriceSettings,
    "[groups.NAME]": tree.GroupSettings,
    "[plugins]": tree.PluginSettings,
    "[hooks.NAME]": tree.HookSettings,
    "[log]": tree.LogSettings,
    "[telemetry]": tree.TelemetrySettings,
    "[batches]": tree.BatchSettings,
    "[files]": tree.FileSettings,
    "[files.s3]": tree.BucketSettings,
}
INLINE = ("targets", "grants")
HEADS = {  # how conf/gateway.toml heads the same sections, but those that stand inline
    "[oidc.NAME]": "[oidc.corp]",
    "[providers.NAME]": "[providers.openai]",
    '[models."NAME"]': '[models."gpt-5-mini"]',
    "price": '[models."gpt-5-mini".price]',
    "[groups.NAME]": "[groups.default]",
    "[hooks.NAME]": "[hooks.pii]",
}


def fields_of(kind: type[Struct]) -> dict[str, structs.FieldInfo]:
    # A provider's options have the provider's own keys; [server.limits] and others have headings of their own.
    others = {"options", "limits", "websocket", "s3"}
    return {field.encode_name: field for field in structs.fields(kind) if field.name not in others}


def documented_default(field: structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if field.type in (Factor, PartFactor):
        return f"`{format_amount(value)}`"
    if value is None or not isinstance(value, (str, int, float, bool, tuple)):
        return "–"
    return f"`{json.dumps(value)}`"


def documented_keys(heading: str) -> dict[str, str]:
    """Key and default of each row under a heading."""
    section = re.split(r"^#{2,3} ", DOC.split(f" {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", section, re.MULTILINE))


@pytest.mark.holds("README.md#operate-it-3")
@pytest.mark.parametrize("heading", SECTIONS)
def test_every_setting_is_documented_with_its_default(heading: str) -> None:
    fields = fields_of(SECTIONS[heading])
    assert documented_keys(heading) == {name: documented_default(field) for name, field in fields.items()}


def test_every_section_is_documented() -> None:
    # Anything that holds settings is in the table above, so that no new section goes without a page.
    kinds = {kind for name, kind in vars(tree).items() if name.endswith("Settings") and isinstance(kind, type)}
    assert kinds == {*SECTIONS.values(), tree.Settings, tree.TierSettings, tree.AmountSettings, tree.MaxPriceSettings}


@pytest.mark.parametrize("heading", [heading for heading in SECTIONS if heading not in INLINE])
def test_every_setting_is_in_the_configuration_file_with_a_comment(heading: str) -> None:
    section = re.split(r"^#?\[", CONF.split(f"{HEADS.get(heading, heading)}\n", 1)[1], flags=re.MULTILINE)[0]
    lines = section.splitlines()
    for name in fields_of(SECTIONS[heading]):
        if name in {"price", "targets", "free"}:
            assert re.search(rf"^#?(\[.*)?\b{name}\b", CONF, re.MULTILINE)
            continue
        [number] = [number for number, line in enumerate(lines) if re.match(rf"#?{name} = ", line)]
        assert lines[number - 1].startswith("# "), f"{name} has no comment"


def default_of(field: structs.FieldInfo) -> Any:
    """The value of a setting that is not set."""
    return field.default_factory() if field.default is NODEFAULT else field.default


def test_defaults_in_the_configuration_file_are_the_defaults() -> None:
    for heading in (
        "[server]",
        "[server.limits]",
        "[server.websocket]",
        "[metrics]",
        "[store]",
        "[database]",
        "[console]",
        "[mail]",
        "[notify]",
        "[log]",
        "[telemetry]",
        "[batches]",
        "[files]",
        "[files.s3]",
    ):
        section = re.split(r"^#?\[", CONF.split(f"{heading}\n", 1)[1], flags=re.MULTILINE)[0]
        values = tomllib.loads(re.sub(r"^#(?! )", "", section, flags=re.MULTILINE))
        fields = fields_of(SECTIONS[heading])
        defaults = {name: default_of(field) for name, field in fields.items()}
        assert values == {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}


def test_configuration_file_is_valid_with_every_line_uncommented() -> None:
    text = re.sub(r"^#(?! )", "", CONF, flags=re.MULTILINE)
    settings = parse(tomllib.loads(text, parse_float=Decimal), file="gateway.toml")
    price = settings.models["gpt-5-mini"].price
    assert price is not None
    assert price[0].amounts().keys() == fields_of(tree.AmountSettings).keys()
    assert settings.models["house-small"].free


def test_toml_blocks_of_the_page_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, text in re.findall(r'"env:(\w+)" +# (.+)', DOC):
        monkeypatch.setenv(variable, text)
    blocks = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    assert blocks
    for block in blocks:
        parse(tomllib.loads(block, parse_float=Decimal), file="gateway.toml")


def test_errors_shown_on_the_page_equal_the_output_of_check() -> None:
    text = (
        '[server]\nprot = 1\n[providers.openai]\nplugin = "openai"\n'
        '[models."gpt-5-mini"]\nprovider = "opanai"\nfree = true\n'
    )
    with pytest.raises(SettingsError) as caught:
        parse(tomllib.loads(text), file="gateway.toml")
    for fault in caught.value.problems:
        assert f"gateway: {fault}\n" in DOC
