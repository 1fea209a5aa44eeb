"""The pepper: the secret of the HMAC of keys, kept outside the store.

It is the value of `store.pepper`, or the file `data_dir/pepper`, created at the first start with mode 0600. Sharp edge:
without it no key is valid.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from gateway.config.settings import Settings

PEPPER_BYTES = 32


class PepperError(Exception):
    """The pepper cannot be used; the text is for the operator."""


def derive(pepper: bytes, purpose: str) -> bytes:
    """A key derived for one purpose; a leaked one does not reveal the others."""
    return hmac.digest(pepper, b"model-gateway " + purpose.encode(), "sha256")


def load_pepper(data_dir: str | Path) -> bytes:
    """The pepper in `data_dir`, created at the first start; without the file every key is invalid."""
    path = Path(data_dir) / "pepper"
    if not path.exists():
        _make_pepper(path)
    if path.stat().st_mode & 0o077:
        raise PepperError(f"{path} can be read by others; chmod 600 it")
    return read_pepper(path.read_text("ascii", "replace"), source=str(path))


def pepper_of(settings: Settings) -> bytes:
    """The pepper of the settings, or the one in data_dir, created at its first use."""
    secret = settings.pepper
    if secret is not None:
        return read_pepper(secret.reveal(), source=f"store.pepper ({secret.reference})")
    return load_pepper(settings.data_dir)


def read_pepper(text: str, *, source: str) -> bytes:
    """A pepper from its text, at least 16 bytes of it."""
    pepper = text.strip().encode()
    if len(pepper) < 16:
        raise PepperError(f"{source} is too short for a pepper: it needs at least 16 characters")
    return pepper


def _make_pepper(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"pepper.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(PEPPER_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # atomic, and never replaces the pepper of another process
        except FileExistsError:
            return
    finally:
        draft.unlink()
