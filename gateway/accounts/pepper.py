"""The pepper: the secret of the HMAC of keys, kept outside the store.

It is the value of `store.pepper`, or the file `data_dir/pepper`, which `gateway serve` creates at the first start with
mode 0600. No command creates it: a second pepper would make keys that the gateway does not find. During a rotation,
`store.previous_pepper` is valid beside it. Sharp edge: without it no key is valid.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from msgspec import Struct

from gateway.config.settings import Settings

NAME = "pepper"
PEPPER_BYTES = 32


class PepperError(Exception):
    """The pepper cannot be used; the text is for the operator."""


def derive(pepper: bytes, purpose: str) -> bytes:
    """A key derived for one purpose; a leaked one does not reveal the others."""
    return hmac.digest(pepper, b"model-gateway " + purpose.encode(), "sha256")


class Peppers(Struct, frozen=True):
    """The pepper of new keys, and during a rotation the previous one, else b""."""

    current: bytes
    previous: bytes = b""

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """What the store's identity has of them, the current one first."""
        return tuple(pepper_fingerprint(pepper) for pepper in (self.current, self.previous) if pepper)

    def __repr__(self) -> str:
        return "Peppers(***)"


def pepper_fingerprint(pepper: bytes) -> str:
    """Text that tells peppers apart and does not reveal them."""
    return derive(pepper, "fingerprint").hex()[:32]


def load_pepper(data_dir: str | Path) -> bytes:
    """The pepper in `data_dir`, created if there is none; only for the first start."""
    path = Path(data_dir) / NAME
    if not path.exists():
        _make_pepper(path)
    return _read_file(path)


def find_peppers(settings: Settings) -> Peppers | None:
    """The peppers of the settings, or the one in data_dir; None if there is no file yet."""
    previous = settings.previous_pepper
    old = read_pepper(previous.reveal(), source=f"store.previous_pepper ({previous.reference})") if previous else b""
    secret = settings.pepper
    if secret is not None:
        return Peppers(read_pepper(secret.reveal(), source=f"store.pepper ({secret.reference})"), old)
    path = settings.data_dir / NAME
    return Peppers(_read_file(path), old) if path.exists() else None


def peppers_of(settings: Settings) -> Peppers:
    """`find_peppers` for commands; PepperError if there is none."""
    peppers = find_peppers(settings)
    if peppers is None:
        raise PepperError(
            f"there is no pepper at {settings.data_dir / NAME}: `gateway serve` creates it at the first start; check "
            "store.data_dir, or set store.pepper"
        )
    return peppers


def _read_file(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise PepperError(f"{path} can be read by others; chmod 600 it")
    return read_pepper(path.read_text("ascii", "replace"), source=str(path))


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
