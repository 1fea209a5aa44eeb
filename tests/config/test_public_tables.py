"""Tables of public prices of an installation: which is the newest, and that a configuration keeps the one it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.backup.data_files import dump_files, load_files
from gateway.config.configuration import Configuration
from gateway.config.public_prices import public_price, table_names
from gateway.config.public_tables import PublicTables
from gateway.config.shared_configuration import configuration_hash

CONFIG = """
[store]
data_dir = "var"

[providers.openai]
plugin = "openai"

[models.m]
provider = "openai"
price = "openai/gpt-5-mini"
"""


def add(folder: Path, name: str, amount: int) -> None:
    prices = folder / "var" / "prices"
    prices.mkdir(parents=True, exist_ok=True)
    (prices / f"{name}.toml").write_text(f'"openai/gpt-5-mini" = {{ input = {amount}, output = {amount} }}\n')


def input_of(configuration: Configuration) -> int | None:
    price = configuration.settings().models["m"].price
    assert price is not None
    return price[0].input


def test_tables_of_the_installation_come_after_those_of_the_program_in_the_order_of_their_days(tmp_path: Path) -> None:
    for name in ("2026-12-09", "2026-12-09.2", "2026-12-09.10", "2025-01-01"):
        add(tmp_path, name, 1)
    (tmp_path / "var" / "prices" / "notes.toml").write_text("")
    (tmp_path / "var" / "prices" / ".2027-01-01.abcd").write_text("")
    tables = PublicTables.of(tmp_path / "var")
    own = ["2025-01-01", "2026-12-09", "2026-12-09.2", "2026-12-09.10"]
    assert tables.names() == [*table_names(), *own]
    assert tables.newest == "2026-12-09.10"


def test_a_name_can_be_pinned_to_a_table_of_a_day(tmp_path: Path) -> None:
    add(tmp_path, "2026-12-09", 7)
    add(tmp_path, "2026-12-10", 8)
    tables = PublicTables.of(tmp_path / "var")
    assert public_price("openai/gpt-5-mini@2026-12-09", tables)[0]["input"] == 7
    assert public_price("openai/gpt-5-mini", tables)[0]["input"] == 8
    assert public_price("openai/gpt-5-mini@2026-11", tables) == public_price("openai/gpt-5-mini@2026-11")


@pytest.mark.holds("operations/models.md#renew-public-prices-1")
def test_a_worker_that_starts_later_reads_the_configuration_with_the_table_of_its_siblings(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(CONFIG)
    add(tmp_path, "2026-12-09", 7)
    read = Configuration.read(file)
    sent = read.with_tables_of(read.settings())
    add(tmp_path, "2026-12-10", 8)
    assert input_of(sent) == 7 * 10**9
    again = Configuration.read(file)
    reloaded = again.with_tables_of(again.settings())
    assert input_of(reloaded) == 8 * 10**9
    assert reloaded.raw == sent.raw
    assert reloaded.fingerprint != sent.fingerprint
    assert configuration_hash(reloaded.settings()) != configuration_hash(sent.settings())


@pytest.mark.holds("operations/models.md#renew-public-prices-1")
def test_a_backup_has_the_tables(tmp_path: Path) -> None:
    add(tmp_path, "2026-12-09", 7)
    dump_files(tmp_path / "var", tmp_path / "backup")
    load_files(tmp_path / "backup", tmp_path / "new" / "var")
    load_files(tmp_path / "backup", tmp_path / "other" / "var", beside=tmp_path / "var")
    assert PublicTables.of(tmp_path / "new" / "var").newest == "2026-12-09"
    assert not (tmp_path / "other" / "var" / "prices").exists()
