"""Bedrock's credentials from AWS's own chain, as botocore walks it, where the configuration has none.

`current()` gives the ones to sign with. The chain (environment, shared files, SSO, container, instance) needs
the extra `model-gateway[bedrock]`; it is walked, and expiring keys are renewed, in a thread, since botocore blocks.
Sharp edge: keys are renewed a quarter of an hour before they expire; a renewal that fails is an error only once they
have, and until then is tried again every half minute.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any

from gateway.errors import UpstreamAuthError

from .signature import Credentials

PAUSE = 30.0  # seconds from one renewal to the next, or a metadata service that is down would hold up every call
EXTRA = "credentials from AWS's chain need botocore: install model-gateway[bedrock], or configure keys"


class ChainedCredentials:
    """What AWS's chain finds, renewed in time."""

    def __init__(self, found: Any) -> None:
        self._found = found  # botocore's Credentials, or RefreshableCredentials
        self._frozen: Credentials | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._next_renewal = 0.0  # time.monotonic()

    @classmethod
    async def find(cls, profile: str = "") -> ChainedCredentials:
        """Walk the chain, with the shared files' section `profile` if one is named; ValueError when it is empty."""
        try:
            session = importlib.import_module("botocore.session")
        except ImportError:
            raise ValueError(EXTRA) from None
        found = await asyncio.to_thread(lambda: session.Session(profile=profile or None).get_credentials())
        if found is None:
            raise ValueError("AWS's credential chain found no credentials")
        source = cls(found)
        await source.current()
        return source

    async def current(self) -> Credentials:
        """Those to sign with; without a thread while they are good."""
        if self._is_due():
            if self._renewal is None:  # otherwise all who wait share its outcome
                self._renewal = asyncio.create_task(self._renew())
                self._renewal.add_done_callback(_look_at)
            await asyncio.shield(self._renewal)
        assert self._frozen is not None
        return self._frozen

    async def _renew(self) -> None:
        try:
            self._frozen = await asyncio.to_thread(self._found_now)
        finally:
            self._next_renewal = time.monotonic() + PAUSE
            self._renewal = None

    def _is_due(self) -> bool:
        if self._frozen is None:
            return True
        return self._ends_within() and (time.monotonic() >= self._next_renewal or self._ends_within(0))

    def _ends_within(self, seconds: float | None = None) -> bool:
        """Whether the keys are about to expire, by default within botocore's 15 minutes; fixed ones never are."""
        ask = getattr(self._found, "refresh_needed", None)
        return ask is not None and bool(ask(seconds))

    def _found_now(self) -> Credentials:
        try:
            frozen = self._found.get_frozen_credentials()
        except Exception as error:
            # A third party's chain of files, processes and services raises what it likes, quoting what it read.
            if self._frozen is not None and not self._ends_within(0):
                return self._frozen
            detail = f"the credential chain failed: {type(error).__name__}"
            raise UpstreamAuthError(detail=detail).began_at("connection") from None
        return Credentials(
            access_key_id=frozen.access_key, secret_access_key=frozen.secret_key, session_token=frozen.token or ""
        )

    def __repr__(self) -> str:
        return "ChainedCredentials(***)"


def _look_at(renewal: asyncio.Task[None]) -> None:
    """Take note of a failure that nobody waited for, or asyncio would complain of it."""
    if not renewal.cancelled():
        renewal.exception()
