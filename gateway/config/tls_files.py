"""The files of the certificate of the ports, as the settings name them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


class TlsFiles(Struct, frozen=True):
    """Absolute paths. The authorities are None where clients need no certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None  # of callers of /v1
    console_client_ca: Path | None = None  # of the console and the admin API

    def named(self) -> Iterator[tuple[str, Path]]:
        """The files by their settings."""
        yield "server.tls_cert", self.cert
        yield "server.tls_key", self.key
        if self.client_ca is not None:
            yield "server.tls_client_ca", self.client_ca
        if self.console_client_ca is not None:
            yield "console.tls_client_ca", self.console_client_ca
