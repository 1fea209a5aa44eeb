"""Argon2id hashes of passwords, computed in two threads of their own: each takes 50 ms and 64 MiB."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from msgspec import Struct

from gateway.errors import InvalidValue

AT_ONCE = 2
MIN_LENGTH, MAX_LENGTH = 12, 256  # characters
NEVER = "no password of anybody"


class Verified(Struct, frozen=True):
    """Whether a password is right; `new_hash` if the hash should be replaced by a stronger one."""

    is_right: bool
    new_hash: str | None = None


class PasswordHashes:
    """Hashes and checks passwords; `hasher` sets the cost."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()  # the second recommendation of RFC 9106
        self._executor = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="argon2")

    async def hash(self, password: str) -> str:
        """The hash of a checked password."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._hasher.hash, password)

    async def verify(self, stored: str | None, password: str) -> Verified:
        """Whether the password belongs to the hash. Without a hash the answer takes as long, and is no."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._verify, stored, password)

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

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
