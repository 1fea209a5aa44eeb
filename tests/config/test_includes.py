"""Included files: what is merged, in which order, and which file a problem names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.configuration import Configuration
from gateway.config.file_modes import wide_modes
from gateway.config.includes import MOST_BYTES, MOST_FILES
from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.setup.configuration_check import CheckOptions, check_configuration

MAIN = 'include = ["conf.d/*.toml"]\n'
MODEL = '[models.{0}]\nprovider = "fake"\nfree = true\n'
FAKE = '[providers.fake]\nplugin = "fake"\n'


class Folder:
    """A main file and those that it may include."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.main = path / "gateway.toml"
        (path / "conf.d").mkdir()
        self.write("gateway.toml", MAIN)

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def settings(self) -> Settings:
        return load(self.main)

    def faults(self) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            load(self.main)
        return [str(one).replace(f"{self.path}/", "") for one in caught.value.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_tables_of_all_files_are_merged(folder: Folder) -> None:
    folder.write("gateway.toml", MAIN + "[server]\nport = 8090\n[server.limits]\nbody_timeout = 5\n")
    folder.write("conf.d/10-fake.toml", FAKE + "[server]\nworkers = 2\n[server.limits]\nmax_bodies = 1_000_000_000\n")
    folder.write("conf.d/20-models.toml", MODEL.format("a") + "[groups.vip]\nrpm = 5\n")
    folder.write("conf.d/30-models.toml", MODEL.format("b"))
    settings = folder.settings()
    assert (settings.server.port, settings.server.workers) == (8090, 2)
    assert (settings.server.limits.body_timeout, settings.server.limits.max_bodies) == (5.0, 1_000_000_000)
    assert list(settings.models) == ["a", "b"]
    assert settings.groups["vip"].rpm == 5


def test_no_other_file_is_read_without_include(folder: Folder) -> None:
    folder.write("gateway.toml", "[server]\nport = 8090\n")
    folder.write("conf.d/10.toml", "not toml")
    assert folder.settings().server.port == 8090


def test_files_are_read_in_the_order_of_the_list_and_of_their_names_and_once(folder: Folder) -> None:
    folder.write("gateway.toml", 'include = ["last/z.toml", "conf.d/*.toml", "./conf.d/20.toml", "*.toml"]\n' + FAKE)
    folder.write("conf.d/20.toml", MODEL.format("c"))
    folder.write("conf.d/3.toml", MODEL.format("d"))
    folder.write("conf.d/10.toml", MODEL.format("b"))
    folder.write("conf.d/.hidden.toml", "not toml")
    folder.write("conf.d/10.toml~", "not toml")
    folder.write("last/z.toml", MODEL.format("a"))
    assert list(folder.settings().models) == ["a", "b", "c", "d"]


def test_value_of_two_files_is_refused_with_both_names(folder: Folder) -> None:
    folder.write("gateway.toml", MAIN + '[server]\nport = 8090\ntags = ["a"]\n' + FAKE)
    folder.write("conf.d/10.toml", '[server]\nport = 8091\ntags = ["b"]\n' + MODEL.format("a"))
    folder.write("conf.d/20.toml", MODEL.format("a") + '[providers.fake.models.x]\ntext = "hi"\n[server]\nport = 1\n')
    assert folder.faults() == [
        "conf.d/10.toml: server.port: stands in gateway.toml too",
        "conf.d/10.toml: server.tags: stands in gateway.toml too",
        "conf.d/20.toml: models.a: stands in conf.d/10.toml too",
        "conf.d/20.toml: providers.fake: stands in gateway.toml too",
        "conf.d/20.toml: server.port: stands in gateway.toml too",
    ]


@pytest.mark.parametrize("name", ["models.m", "providers.p", "groups.g", "oidc.o"])
def test_named_table_stands_in_one_file_as_a_whole(folder: Folder, name: str) -> None:
    folder.write("conf.d/10.toml", f"[{name}]\na = 1\n")
    folder.write("conf.d/20.toml", f"[{name}]\nb = 1\n")
    assert folder.faults() == [f"conf.d/20.toml: {name}: stands in conf.d/10.toml too"]


def test_section_that_is_no_table_is_refused_with_both_names(folder: Folder) -> None:
    folder.write("gateway.toml", MAIN + "[server]\nport = 1\n")
    folder.write("conf.d/10.toml", "server = 5\n")
    assert folder.faults() == ["conf.d/10.toml: server: stands in gateway.toml too"]


def test_each_problem_names_the_file_of_its_key(folder: Folder) -> None:
    folder.write("gateway.toml", MAIN + "[server]\nport = 8090\n" + FAKE)
    folder.write("conf.d/10.toml", '[server]\nprot = 1\n[models.a]\nprovider = "fake"\n')
    folder.write("conf.d/20.toml", '[log]\nlevel = "loud"\n[sever]\n[models.b]\nprovider = "other"\nfree = true\n')
    assert sorted(folder.faults()) == [
        "conf.d/10.toml: models.a.price: missing: a model has a price, or says free = true",
        'conf.d/10.toml: server.prot: unknown key; nearest: "port"',
        'conf.d/20.toml: log.level: expected one of "debug", "info", "warning", "error"',
        "conf.d/20.toml: models.b.provider: no provider is named 'other'; nearest: \"fake\"",
        'conf.d/20.toml: sever: unknown key; nearest: "server"',
    ]


@pytest.mark.parametrize("key", ['"incl\\u0075de"', '"\\U00000069nclude"', "'include'", '"include"'])
def test_the_key_may_be_quoted_and_have_escapes(folder: Folder, key: str) -> None:
    folder.write("gateway.toml", f'{key} = ["conf.d/*.toml"]\n')
    folder.write("conf.d/10.toml", FAKE + MODEL.format("a"))
    assert list(folder.settings().models) == ["a"]
    folder.write("conf.d/20.toml", f"{key} = []\n")
    assert any("an included file includes none" in fault for fault in folder.faults())


def test_files_that_cannot_be_read_are_named(folder: Folder) -> None:
    folder.write("gateway.toml", 'include = ["away.toml"]\n')
    assert folder.faults() == ["away.toml: cannot be read: No such file or directory"]
    folder.write("gateway.toml", 'include = ["conf.d"]\n')
    assert folder.faults() == ["conf.d: cannot be read: Is a directory"]
    folder.write("gateway.toml", MAIN)
    folder.write("conf.d/10.toml", "a = ]")
    folder.write("conf.d/20.toml", "b")
    first, second = folder.faults()
    assert first.startswith("conf.d/10.toml: is not valid TOML: ")
    assert "line 1" in first
    assert second.startswith("conf.d/20.toml: is not valid TOML: ")


def test_paths_that_lead_nowhere_are_named(folder: Folder) -> None:
    folder.write("gateway.toml", 'include = ["~no-such-user/a.toml"]\n')
    assert folder.faults() == ["gateway.toml: include: ~no-such-user/a.toml: no such home folder"]
    folder.write("gateway.toml", 'include = ["a\\u0000b"]\n')
    assert folder.faults() == ["a\0b: cannot be read: it leads nowhere"]
    folder.write("gateway.toml", MAIN)
    (folder.path / "conf.d" / "a.toml").symlink_to("a.toml")
    assert folder.faults() == ["conf.d/a.toml: cannot be read: Too many levels of symbolic links"]


@pytest.mark.parametrize("value", ["5", '"conf.d"', "[1]", '[""]'])
def test_include_is_a_list_of_names(folder: Folder, value: str) -> None:
    folder.write("gateway.toml", f"include = {value}\n")
    assert folder.faults() == ['gateway.toml: include: expected a list of files, as in ["conf.d/*.toml"]']


def test_included_file_includes_none(folder: Folder) -> None:
    folder.write("conf.d/10.toml", MAIN)
    assert folder.faults() == ["conf.d/10.toml: include: belongs into gateway.toml: an included file includes none"]


def test_number_and_size_of_files_are_bounded(folder: Folder) -> None:
    for number in range(MOST_FILES):
        folder.write(f"conf.d/{number}.toml", "")
    folder.settings()
    folder.write("conf.d/more.toml", "")
    assert folder.faults() == [f"gateway.toml: include: more than {MOST_FILES} files"]
    folder.write("gateway.toml", 'include = ["conf.d/1.toml", "conf.d/2.toml"]\n')
    folder.write("conf.d/1.toml", "#" * (MOST_BYTES - 10))
    folder.write("conf.d/2.toml", "#" * 10)
    folder.settings()
    folder.write("conf.d/2.toml", "#" * 11)
    assert folder.faults() == ["conf.d/2.toml: is too long, alone or with other included files"]


def test_relative_paths_start_at_the_folder_of_the_main_file(folder: Folder) -> None:
    folder.write("conf.d/10.toml", '[store]\ndata_dir = "data"\npepper = "file:pepper"\n')
    settings = folder.settings()
    assert settings.data_dir == folder.path / "data"
    assert settings.pepper is not None
    assert settings.pepper.file == folder.path / "pepper"


def test_configuration_of_processes_has_the_files_and_a_fingerprint_of_all(folder: Folder) -> None:
    part = folder.write("conf.d/10.toml", FAKE)
    before = Configuration.read(folder.main)
    part.write_text("not toml any more")
    assert list(before.settings().providers) == ["fake"]
    part.write_text(FAKE + "\n")
    assert Configuration.read(folder.main).fingerprint != before.fingerprint
    part.write_text(FAKE)
    assert Configuration.read(folder.main).fingerprint == before.fingerprint


async def test_check_names_the_included_file(folder: Folder) -> None:
    folder.write("conf.d/10.toml", '[providers.p]\nplugin = "openai"\napi_kye = "env:A"\n')
    folder.write("conf.d/20.toml", '[providers.q]\nplugin = "no-such"\n[plugins]\ndisabled = ["none"]\n')
    found = await check_configuration(folder.main, CheckOptions(offline=True))
    texts = [str(fault).replace(f"{folder.path}/", "") for fault in found.faults]
    assert any(text.startswith("conf.d/10.toml: providers.p.api_kye: unknown key") for text in texts)
    assert any(text.startswith("conf.d/20.toml: providers.q.plugin: no provider 'no-such' is loaded") for text in texts)
    assert any(text.startswith("conf.d/20.toml: plugins.disabled[0]: no plugin is named") for text in texts)


def test_included_file_that_others_can_change_is_warned_of(folder: Folder) -> None:
    part = folder.write("conf.d/10.toml", FAKE)
    part.chmod(0o666)
    assert any(text.startswith(f"{part}: other users can change it") for text in wide_modes(folder.settings()))
