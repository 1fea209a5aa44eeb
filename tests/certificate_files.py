"""Certificates of an authority of the tests, as files and as contexts of `ssl`."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

import trustme

from gateway.config.tls_files import TlsFiles
from gateway.http_server.tls_pair import TlsPairs, read_pairs


class CertificateFiles:
    """A folder with `tls.crt` and `tls.key` for this machine."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.folder = folder
        self.cert, self.key, self.client_ca = folder / "tls.crt", folder / "tls.key", folder / "ca.pem"
        folder.mkdir(exist_ok=True)
        self.authority.cert_pem.write_to_path(str(self.client_ca))
        self.issue()

    def issue(self, *, not_before: datetime | None = None, not_after: datetime | None = None) -> int:
        """Write a new pair; its serial number."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1", not_before=not_before, not_after=not_after)
        self.cert.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.key.chmod(0o600)
        return self.serial()

    def serial(self) -> int:
        """That of the certificate in the file."""
        from cryptography import x509

        return x509.load_pem_x509_certificates(self.cert.read_bytes())[0].serial_number

    def files(self, *, client_ca: bool = False) -> TlsFiles:
        """As the settings name them."""
        return TlsFiles(self.cert, self.key, self.client_ca if client_ca else None)

    def pairs(self, *, client_ca: bool = False, own_client: tuple[bytes, bytes] = (b"", b"")) -> TlsPairs:
        """What the files hold."""
        return read_pairs(self.files(client_ca=client_ca), own_client)

    def client(self, certificate_of: trustme.CA | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority; it may have a certificate."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate_of is not None:
            certificate_of.issue_cert("client@example.com").configure_cert(context)
        return context


def served_serial(peer: ssl.SSLObject | ssl.SSLSocket) -> int:
    """The serial number of the certificate that a server presented."""
    found = peer.getpeercert()
    assert found is not None
    return int(str(found["serialNumber"]), 16)
