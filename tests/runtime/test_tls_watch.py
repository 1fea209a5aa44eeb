"""The certificate of the ports is renewed when its files change, and only by a pair that can serve."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.http_server.tls_pair import TlsPairs
from gateway.http_server.tls_watch import TlsWatch
from tests.certificate_files import CertificateFiles
from tests.http_server.test_tls_pair import other_key, truncate


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls")


class Watched:
    """A watch, what it has reported, and the pairs that it gave on."""

    def __init__(self, files: CertificateFiles) -> None:
        self.files = files
        self.reports: list[tuple[float, bool]] = []
        self.renewed: list[TlsPairs] = []
        self.watch = TlsWatch(lambda ends, refused: self.reports.append((ends, refused)), self.renewed.append)

    async def look(self) -> None:
        """What happens every two seconds."""
        await self.watch.look()


async def begun(files: CertificateFiles) -> Watched:
    watched = Watched(files)
    await watched.watch.begin(files.files())
    assert watched.reports == [(files.pairs().ends, False)]
    return watched


@pytest.mark.holds("operations/tls.md#renewal-1")
async def test_pair_that_is_written_anew_is_given_on_once(files: CertificateFiles) -> None:
    watched = await begun(files)
    await watched.look()
    assert watched.renewed == []
    files.issue()
    for _ in range(3):
        await watched.look()
    assert watched.renewed == [files.pairs()]
    assert watched.watch.api == files.pairs().api


@pytest.mark.holds("operations/tls.md#renewal-1")
async def test_pair_behind_a_swapped_link_is_given_on(tmp_path: Path) -> None:
    """As the kubelet updates a mounted secret: names are links through a link to the folder of the version."""
    versions = [CertificateFiles(tmp_path / f"..version{number}") for number in (1, 2)]
    data = tmp_path / "..data"
    data.symlink_to(versions[0].folder)
    files = CertificateFiles(tmp_path / "unused")
    for path in (files.cert, files.key):
        path.unlink()
        path.symlink_to(data / path.name)
    watched = await begun(files)
    fresh = tmp_path / "..fresh"
    fresh.symlink_to(versions[1].folder)
    fresh.rename(data)
    await watched.look()
    assert watched.renewed == [versions[1].pairs()]


@pytest.mark.holds("operations/tls.md#renewal-2")
async def test_half_written_pair_is_kept_out_until_it_is_whole(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    watched = await begun(files)
    before = files.pairs()
    files.issue()
    key = files.key.read_bytes()
    other_key(files.key)
    await watched.look()
    await watched.look()
    assert watched.renewed == []
    assert watched.watch.api == before.api
    assert watched.reports[-1] == (before.ends, True)
    said = f"the new certificate is not used, the one in force stays: server.tls_key: {files.key} is not the key of"
    assert caplog.text.count(said) == 1
    assert "BEGIN" not in caplog.text
    files.key.write_bytes(key)
    await watched.look()
    assert watched.renewed == [files.pairs()]
    assert watched.reports[-1] == (files.pairs().ends, False)


@pytest.mark.holds("operations/tls.md#renewal-2")
async def test_pair_of_before_that_comes_back_ends_the_refusal(files: CertificateFiles) -> None:
    watched = await begun(files)
    whole = files.cert.read_bytes()
    truncate(files.cert)
    await watched.look()
    assert watched.reports[-1][1]
    files.cert.write_bytes(whole)
    await watched.look()
    assert watched.renewed == []
    assert not watched.reports[-1][1]


async def test_file_that_is_away_has_until_the_next_look(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    watched = await begun(files)
    files.key.unlink()
    await watched.look()
    assert caplog.text == ""
    await watched.look()
    assert f"server.tls_key: {files.key} cannot be read" in caplog.text


@pytest.mark.holds("operations/tls.md#renewal-2")
async def test_expired_certificate_replaces_none(files: CertificateFiles, caplog: pytest.LogCaptureFixture) -> None:
    watched = await begun(files)
    day = timedelta(days=1)
    files.issue(not_before=datetime.now(UTC) - 3 * day, not_after=datetime.now(UTC) - day)
    await watched.look()
    assert watched.renewed == []
    assert f"server.tls_cert: the certificate in {files.cert} expired on" in caplog.text


@pytest.mark.holds("operations/tls.md#renewal-2")
async def test_refused_pair_is_used_once_it_is_good_without_a_change_of_its_files(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = await begun(files)
    now = datetime.now(UTC)
    files.issue(not_before=now + timedelta(hours=1), not_after=now + timedelta(days=9))
    for _ in range(3):
        await watched.look()
    assert watched.renewed == []
    assert caplog.text.count("is not valid before") == 1
    monkeypatch.setattr("gateway.http_server.tls_watch.time.time", lambda: now.timestamp() + 3601)
    await watched.look()
    assert watched.renewed == [files.pairs()]
    assert watched.reports[-1] == (files.pairs().ends, False)


async def test_certificate_of_an_unknown_version_is_refused_like_any_other_fault(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    watched = await begun(files)
    lines = files.cert.read_text().split("-----")
    der = b64decode(lines[2])
    version = bytes.fromhex("a003020102")
    assert version in der
    lines[2] = f"\n{b64encode(der.replace(version, version[:-1] + bytes([48]))).decode()}\n"
    files.cert.write_text("-----".join(lines))
    await watched.look()
    assert f"server.tls_cert: {files.cert} has no certificate in PEM form, or an unfinished one" in caplog.text
    assert watched.reports[-1][1]


async def test_failure_that_is_not_foreseen_leaves_the_pair_in_force(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = await begun(files)
    files.issue()

    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("gateway.http_server.tls_watch.read_pairs", fails)
        await watched.look()
    assert watched.renewed == []
    assert "the one in force stays: OSError" in caplog.text
    await watched.look()
    assert watched.renewed == [files.pairs()]


async def test_begin_without_files_watches_nothing() -> None:
    watch = TlsWatch(lambda ends, refused: None, lambda pairs: None)
    await watch.begin(None)
    await watch.run()
    assert watch.api is None
    assert watch.console is None
