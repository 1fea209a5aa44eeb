"""The store's address from the settings: references instead of secrets."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.store import StoreSetupError
from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress
from gateway.store.configured import configured_address


def settings(tmp_path: Path, **store: Any) -> Settings:
    return parse({"store": store}, file=str(tmp_path / "gateway.toml"))


@pytest.mark.holds("operations/redis.md#secrets-of-the-store-1")
def test_url_and_passwords_come_from_variables_and_files(tmp_path, monkeypatch):
    (tmp_path / "url").write_text("redis+sentinel://clerk@one,two/SERVICE/3\n")
    monkeypatch.setenv("STORE_PASSWORD", "p@ss/word")
    monkeypatch.setenv("SENTINEL_PASSWORD", "other")
    found = settings(tmp_path, url="file:url", password="env:STORE_PASSWORD", sentinel_password="env:SENTINEL_PASSWORD")
    address = configured_address(found)
    assert isinstance(address, SentinelAddress)
    assert (address.server.username, address.server.password, address.server.db) == ("clerk", "p@ss/word", 3)
    assert {one.password for one in address.sentinels} == {"other"}
    assert "p@ss" not in repr(found) + repr(address) + str(address)


def test_password_replaces_the_one_of_every_node(tmp_path, monkeypatch):
    monkeypatch.setenv("STORE_PASSWORD", "right")
    one = configured_address(settings(tmp_path, url="redis://:wrong@host", password="env:STORE_PASSWORD"))
    assert isinstance(one, RedisAddress) and one.password == "right"
    many = configured_address(settings(tmp_path, url="redis+cluster://a,b", password="env:STORE_PASSWORD"))
    assert isinstance(many, ClusterAddress) and [node.password for node in many.nodes] == ["right", "right"]


def test_no_url_is_the_embedded_store(tmp_path):
    assert configured_address(settings(tmp_path)) is None


def test_missing_secret_and_invalid_url_behind_a_reference_are_named_without_their_text(tmp_path, monkeypatch):
    with pytest.raises(SecretError, match="NOT_SET"):
        configured_address(settings(tmp_path, url="env:NOT_SET"))
    monkeypatch.setenv("STORE_URL", "http://u:s3cret@host")
    with pytest.raises(StoreSetupError) as caught:
        configured_address(settings(tmp_path, url="env:STORE_URL"))
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("PASSWORD", "s3cret")
    with pytest.raises(StoreSetupError, match="names no sentinels"):
        configured_address(settings(tmp_path, url="redis://host", sentinel_password="env:PASSWORD"))


@pytest.mark.parametrize(
    "store", [{"url": "redis://h", "password": "literal"}, {"password": "env:X"}, {"url": "env:not a name"}]
)
def test_invalid_references_are_problems_of_the_configuration(tmp_path, store):
    with pytest.raises(SettingsError, match=r"store\.(password|url)") as caught:
        settings(tmp_path, **store)
    assert "literal" not in str(caught.value).replace("not as a literal", "")


def test_password_in_the_file_is_a_warning_without_the_password(tmp_path):
    (warning,) = settings(tmp_path, url="redis://u:s3cret@host").warnings
    assert "store.password" in warning
    assert "s3cret" not in warning
    assert settings(tmp_path, url="redis://host").warnings == ()
