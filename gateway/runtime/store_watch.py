"""The supervisor's watch over the store: its settings and identity at the first contact, then whether it can be used.

A store that holds no identity although one is known, or another one, is not used by any process (`store.identity`).
The watch logs each change of state once and answers `/readyz`. It writes a key every `EVERY` seconds, because a full
server, a replica, or a server whose disk is full still answers reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.accounts.pepper import NAME, PepperError, Peppers, find_peppers, load_pepper
from gateway.accounts.store_claim import claim, has_keys, read_identity
from gateway.config.settings import Settings
from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.log import gateway_log
from gateway.store import Store, StoreSetupError
from gateway.store.greeting import ServerRejected
from gateway.store.identity import StoreGuard, known_deployment

EVERY = 5.0  # seconds between two looks at a store that can be used
AGAIN = 1.0  # seconds until the next look at one that cannot
#: Seconds until `/readyz` counts a store that does not answer as one that cannot be used. Kubernetes waits for 1 second
#: by default; and a command of `store.timeout` may wait longer, behind others.
READY_WITHIN = 0.9

AWAY = "the store does not answer; requests get 503 until it does: %s"
REJECTED = "the store cannot be used; requests get 503 until it can: %s"
NO_WRITES = "the store refuses writes; requests get 503 until it takes them: %s"
UNPROVED = (
    "the store has keys, but no fingerprint of a pepper yet: it is written when a key of a request is found; until "
    "then a wrong pepper is not noticed"
)


class StoreWatch:
    """One store, from before its first answer to the end of the supervisor."""

    def __init__(
        self, settings: Settings, *, accept_empty: bool, on_claimed: Callable[[str], None], on_back: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._known = known_deployment(settings.data_dir)
        self._found = find_peppers(settings)
        self._new_pepper = False
        self._on_claimed = on_claimed
        self._on_back = on_back
        self._begun = False  # `begin` has returned, with the peppers
        self._contacted = False
        self.is_up = False  # as `run` has found it
        self.guard = StoreGuard(
            deployment=self._known.read(),
            peppers=self._found.fingerprints if self._found is not None else (),
            accepts_empty=accept_empty,
        )

    async def begin(self, store: Store) -> Peppers:
        """The peppers, created at the first start, and the first contact if the store answers.

        PepperError if the store has keys and there is no pepper; StoreSetupError for settings that lose money.
        """
        self.store = store
        if self._found is None:
            if store.whole() and await self._is_used():
                raise PepperError(self._lost_pepper())
            self._new_pepper = True
            self._found = Peppers(load_pepper(self._settings.data_dir))
            self.guard.peppers = self._found.fingerprints
        if store.whole():
            await self._first_contact()
        self._begun = True
        return self._found

    async def run(self) -> None:
        """Look at the store until cancelled; log what keeps requests from being served, and when that ends."""
        reported = ""
        while True:
            line, detail = await self._problem()
            self.is_up = not line
            if line and line != reported:
                gateway_log.error(line, detail)
            elif reported and not line:
                self._on_back()
            reported = line
            await asyncio.sleep(AGAIN if line else EVERY)

    async def is_usable(self) -> bool:
        """Whether every server holds this deployment's store and takes writes, within `READY_WITHIN` seconds.

        Not before `begin` has returned.
        """
        if not self._begun:
            return False
        try:
            async with asyncio.timeout(READY_WITHIN):
                line, _ = await self._problem()
        except TimeoutError:
            return False
        return not line

    async def _problem(self) -> tuple[str, str]:
        """A line of the log and its detail; empty if there is no problem."""
        try:
            if not self._contacted:
                await self._first_contact()
            await self.store.probe()
        except StoreUnavailable as error:
            if self.store.problem or isinstance(error, ServerRejected):
                return REJECTED, self.store.problem or error.detail or ""
            if error.fate is StoreFate.REFUSED:
                return NO_WRITES, error.detail or ""
            return AWAY, error.log_text()
        except GatewayError as error:  # a reply that refuses a command, for example to a user without permission
            return REJECTED, error.detail or error.message
        return "", ""

    async def _first_contact(self) -> None:
        store, peppers = self.store, self._found
        assert peppers is not None
        faults = await store.faults()
        if faults and not self._settings.store.unsafe:
            raise StoreSetupError(f"{'; '.join(faults)}; or accept the loss with store.unsafe = true")
        for warning in await store.warnings():
            gateway_log.warning("%s", warning)
        before = await read_identity(store)
        if self._new_pepper and not (before and before.peppers) and await has_keys(store):
            (self._settings.data_dir / NAME).unlink(missing_ok=True)
            raise PepperError(self._lost_pepper())
        identity = await claim(store, peppers.fingerprints)
        self.guard.deployment, self.guard.accepts_empty = identity.deployment, False
        if not identity.peppers:
            gateway_log.warning("%s", UNPROVED)
        try:
            self._known.write(identity.deployment)
        except OSError as error:
            gateway_log.warning("the deployment's id cannot be stored in data_dir: %s", error)
        if not self._contacted:
            self._contacted = True
            self._on_claimed(identity.deployment)

    async def _is_used(self) -> bool:
        """Whether the store has keys that were hashed with some pepper."""
        identity = await read_identity(self.store)
        return bool(identity and identity.peppers) or await has_keys(self.store)

    def _lost_pepper(self) -> str:
        path = self._settings.data_dir / NAME
        return (
            f"the store has keys, but there is no pepper at {path}: restore it, or check store.url and store.data_dir"
        )
