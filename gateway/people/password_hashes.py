"""Argon2id hashes of passwords, computed in two threads of their own: each takes 50 ms and 64 MiB.

Addresses share the threads fairly, because most hashes are computed for people who are not known yet.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from msgspec import Struct

from gateway.errors import InvalidValue
from gateway.http_server.client_address import network_of
from gateway.web.work_threads import FairThreads

AT_ONCE = 2
MIN_LENGTH, MAX_LENGTH = 12, 256  # characters
NEVER = "no password of anybody"
REFUSAL: Final = "Too many passwords are being checked at the moment; try again in a moment"


class Verified(Struct, frozen=True):
    """Whether a password is right; `new_hash` if the hash should be replaced by a stronger one."""

    is_right: bool
    new_hash: str | None = None


class PasswordHashes:
    """Hashes and checks passwords; `hasher` sets the cost."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()  # the second recommendation of RFC 9106
        self._threads = FairThreads("argon2", AT_ONCE, refusal=REFUSAL)

    async def hash(self, password: str, address: str) -> str:
        """The hash of a checked password, for a person at an address; TooManyRequests."""
        return await self._threads.run(network_of(address), self._hasher.hash, password)

    async def verify(self, stored: str | None, password: str, address: str) -> Verified:
        """Whether the password belongs to the hash; TooManyRequests.

        Without a hash the answer takes as long, and is no.
        """
        return await self._threads.run(network_of(address), self._verify, stored, password)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _verify(self, stored: str | None, password: str) -> Verified:
        password, dummy = password[: MAX_LENGTH + 1], self._dummy  # a longer password is never right
        try:
            self._hasher.verify(stored if stored is not None else dummy, password)
        except (Argon2Error, InvalidHashError):
            return Verified(False)
        if stored is None:
            return Verified(False)
        return Verified(True, self._hasher.hash(password) if self._hasher.check_needs_rehash(stored) else None)

    @cached_property
    def _dummy(self) -> str:
        return self._hasher.hash(NEVER)


def checked_password(password: str, *, email: str) -> str:
    """A new password; InvalidValue if it is too short or too long, or is the e-mail address."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise InvalidValue(f"A password has {MIN_LENGTH} to {MAX_LENGTH} characters", param="password")
    if password.strip().lower() == email:
        raise InvalidValue("The e-mail address is no password", param="password")
    return password
