"""The files of a certificate: each fault is named by its setting, and a renewed pair replaces only a sound one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from msgspec import structs

from gateway.http_server.tls_pair import SOON, TlsProblem, read_pairs, server_context
from tests.certificate_files import CertificateFiles


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def encrypt(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    path.write_bytes(encoded)


def other_key(path: Path) -> None:
    path.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())


def key_of_another_kind(path: Path) -> None:
    path.write_bytes(trustme.CA().issue_cert("localhost", key_type=trustme.KeyType.RSA).private_key_pem.bytes())


def unfinished_chain(path: Path) -> None:
    path.write_bytes(path.read_bytes() + path.read_bytes()[:300])


FAULTS: list[tuple[str, Callable[[Path], object], str]] = [
    ("tls.crt", Path.unlink, "server.tls_cert: {} cannot be read: No such file or directory"),
    ("tls.crt", truncate, "server.tls_cert: {} has no certificate in PEM form, or an unfinished one"),
    ("tls.crt", lambda path: path.write_bytes(b""), "server.tls_cert: {} has no certificate in PEM form, or an"),
    ("tls.crt", lambda path: path.write_bytes(b"x" * 70_000), "server.tls_cert: {} is longer than 65536 bytes"),
    ("tls.key", Path.unlink, "server.tls_key: {} cannot be read: No such file or directory"),
    ("tls.key", truncate, "server.tls_key: {} has no private key in PEM form, or an unfinished one"),
    ("tls.key", other_key, "server.tls_key: {} is not the key of the certificate in server.tls_cert"),
    ("tls.key", key_of_another_kind, "server.tls_key: {} is not the key of the certificate in server.tls_cert"),
    ("tls.crt", unfinished_chain, "server.tls_cert: {} has no certificate in PEM form, or an unfinished one"),
    ("tls.key", encrypt, "server.tls_key: {} is encrypted with a password; the gateway needs it without one"),
    ("ca.pem", truncate, "server.tls_client_ca: {} has no certificates in PEM form, or an unfinished one"),
    ("ca.pem", lambda path: path.write_bytes(b"\xff"), "server.tls_client_ca: {} has no certificates in PEM form"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), FAULTS)
def test_each_fault_is_named_by_setting_and_file(
    files: CertificateFiles, name: str, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(files.folder / name)
    with pytest.raises(TlsProblem) as caught:
        read_pairs(files.files(client_ca=True))
    assert str(caught.value).startswith(message.format(files.folder / name))


@pytest.mark.parametrize("kind", [trustme.KeyType.RSA, trustme.KeyType.ECDSA])
def test_both_kinds_of_keys_and_a_chain_make_a_context(files: CertificateFiles, kind: trustme.KeyType) -> None:
    issued = files.authority.create_child_ca(key_type=kind).issue_cert("localhost", key_type=kind)
    files.cert.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    files.key.write_bytes(issued.private_key_pem.bytes())
    assert len(issued.cert_chain_pems) == 2
    server_context(files.pairs().api)


def test_bytes_of_a_pair_stand_in_no_repr(files: CertificateFiles) -> None:
    assert "BEGIN" not in repr(files.pairs())


def test_dates_make_a_problem_or_a_warning(files: CertificateFiles) -> None:
    now = time.time()
    pairs, names = files.pairs(), files.files()
    assert pairs.warning(names, now) == ""
    for begins, ends, problem, warning in (
        (now - 100, now - 1, "expired on", "expired on"),
        (now + 60, now + 10 * SOON, "is not valid before", "is not valid before"),
        (now - 100, now + SOON - 60, "", "and is not renewed yet"),
        (now - 100, now + SOON + 60, "", ""),
    ):
        one = structs.replace(pairs, begins=begins, ends=ends)
        assert problem in one.problem(names, now)
        assert bool(one.problem(names, now)) is bool(problem)
        assert warning in one.warning(names, now)
        assert bool(one.warning(names, now)) is bool(warning)
