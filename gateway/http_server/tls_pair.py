"""The certificate and key of the ports with TLS: read from files, checked, and made into contexts of `ssl`.

`read_pairs(files)` reads and checks; what cannot serve is a `TlsProblem` that names the setting. The supervisor reads
the files, and its processes get the bytes: a worker that starts beside a half-written pair serves what its siblings
serve.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct

from gateway.config.regular_files import read_regular
from gateway.config.tls_files import TlsFiles

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_PAIR_FILE: Final = 65_536  # bytes of a certificate with its chain, or of a key
MAX_CA_FILE: Final = 1_048_576  # bytes of the authorities of clients
BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
ALPN: Final = ["http/1.1"]
SOON: Final = 7 * 86_400.0  # seconds before the end of a certificate at which it should have been renewed
OWN_CLIENT_DAYS: Final = 3_650  # more than a process runs
#: Reasons of OpenSSL; the last one is that of a key of another kind.
OTHER_KEY: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
CERT, KEY, CLIENT_CA = "server.tls_cert", "server.tls_key", "server.tls_client_ca"
CONSOLE_CLIENT_CA = "console.tls_client_ca"


class TlsProblem(ValueError):
    """Why a pair cannot serve; `key` is the setting that is to blame. The text has no bytes of a file."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class TlsPair(Struct, frozen=True, array_like=True):
    """What one process needs, as PEM."""

    cert: bytes
    key: bytes
    client_ca: bytes = b""  # empty: clients need no certificate
    own_client: bytes = b""  # the certificate of the console of this gateway as a client of /v1
    own_client_key: bytes = b""

    def __repr__(self) -> str:
        return "TlsPair"


class TlsPairs(Struct, frozen=True):
    """Of the workers and of the console."""

    api: TlsPair
    console: TlsPair
    begins: float  # Unix time
    ends: float

    def problem(self, files: TlsFiles, now: float) -> str:
        """Why clients refuse the certificate because of its dates; empty if they do not."""
        if now >= self.ends:
            return f"the certificate in {files.cert} expired on {_minute(self.ends)}"
        if now < self.begins:
            return f"the certificate in {files.cert} is not valid before {_minute(self.begins)}"
        return ""

    def warning(self, files: TlsFiles, now: float) -> str:
        """That the certificate has expired or soon will; empty if not."""
        if problem := self.problem(files, now):
            return problem
        if self.ends - now < SOON:
            return f"the certificate in {files.cert} expires on {_minute(self.ends)}, and is not renewed yet"
        return ""


def read_pairs(files: TlsFiles, own_client: tuple[bytes, bytes] = (b"", b"")) -> TlsPairs:
    """What the files hold; TlsProblem if it cannot serve. An expired certificate can: see `TlsPairs.problem`.

    `own_client`: certificate and key of `new_own_client`, if callers of /v1 need a certificate.
    """
    cert, key = _read(CERT, files.cert, MAX_PAIR_FILE), _read(KEY, files.key, MAX_PAIR_FILE)
    client_ca = _read_authorities(CLIENT_CA, files.client_ca)
    console_ca = _read_authorities(CONSOLE_CLIENT_CA, files.console_client_ca)
    leaf = _leaf(files.cert, cert)
    pairs = TlsPairs(
        TlsPair(cert, key, client_ca, own_client[0]),
        TlsPair(cert, key, console_ca, *own_client),
        begins=leaf.not_valid_before_utc.timestamp(),
        ends=leaf.not_valid_after_utc.timestamp(),
    )
    try:
        server_context(pairs.api)
    except TlsProblem as problem:
        raise TlsProblem(problem.key, f"{dict(files.named())[problem.key]} {problem.message}") from None
    return pairs


def server_context(pair: TlsPair) -> ssl.SSLContext:
    """A context for accepted connections; TlsProblem if certificate and key do not fit together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    _load_pair(context, pair.cert, pair.key)
    if pair.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate authority may be named alone
        context.load_verify_locations(cadata=_ascii(pair.client_ca + b"\n" + pair.own_client))
        # A resumed session does not check the client's certificate again. Of TLS 1.2 there still are those that the
        # context remembers: see `is_resumed_too_late`.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def is_resumed_too_late(peer: ssl.SSLObject) -> bool:
    """Whether a client has resumed a session although its certificate has expired meanwhile."""
    if not peer.session_reused or not (certificate := peer.getpeercert()):
        return False
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) < time.time()


def own_context(pair: TlsPair) -> ssl.SSLContext:
    """A context for a client on this machine that calls /v1: it trusts the certificate itself, whatever its names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=_first_block(pair.cert))
    if pair.own_client_key:
        _load_pair(context, pair.own_client, pair.own_client_key)
    return context


def new_own_client() -> tuple[bytes, bytes]:
    """A certificate of its own and its key, with which the console calls /v1 where callers need a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "model-gateway console")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=OWN_CLIENT_DAYS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _read(key: str, path: Path, most: int) -> bytes:
    try:
        raw = read_regular(path, most + 1)
    except OSError as error:
        raise TlsProblem(key, f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > most:
        raise TlsProblem(key, f"{path} is longer than {most} bytes")
    return raw


def _read_authorities(key: str, path: Path | None) -> bytes:
    if path is None:
        return b""
    pem = _read(key, path, MAX_CA_FILE)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=_ascii(pem))
    except (ssl.SSLError, ValueError):
        raise TlsProblem(key, f"{path} has no certificates in PEM form, or an unfinished one") from None
    return pem


def _leaf(path: Path, cert: bytes) -> Certificate:
    from cryptography.x509 import InvalidVersion, load_pem_x509_certificates  # 6 MB that a gateway does without

    try:
        found = load_pem_x509_certificates(cert)
    except (ValueError, InvalidVersion):
        found = []
    if not found or cert.count(BEGIN) != len(found):  # the rest of an unfinished one would be left out
        raise TlsProblem(CERT, f"{path} has no certificate in PEM form, or an unfinished one")
    return found[0]


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Give a context the pair. `ssl` reads files only: it gets two in memory, so that the key is in no other folder."""
    with _in_memory(cert) as cert_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(cert_path, key_path, password=_no_password)
        except ssl.SSLError as error:
            if error.reason in OTHER_KEY:
                raise TlsProblem(KEY, "is not the key of the certificate in server.tls_cert") from None
            if error.library == "SSL" and error.reason:
                raise TlsProblem(CERT, f"cannot be used: {error.reason.lower().replace('_', ' ')}") from None
            raise TlsProblem(KEY, "has no private key in PEM form, or an unfinished one") from None


def _no_password() -> NoReturn:
    raise TlsProblem(KEY, "is encrypted with a password; the gateway needs it without one")


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path from which the content can be read once. Outside Linux it is that of a temporary file without a name."""
    with os.fdopen(os.memfd_create("tls"), "w+b") if sys.platform == "linux" else tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _ascii(pem: bytes) -> str:
    """PEM without what comments beside it may have."""
    return pem.decode("ascii", "ignore")


def _first_block(pem: bytes) -> str:
    return _ascii(pem).partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"


def _minute(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M UTC")
