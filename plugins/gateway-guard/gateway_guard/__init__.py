"""Masks or refuses what requests and answers must not have: secrets by their shape, and matches of your own patterns.

::

    [hooks.guard]
    plugin = "guard"
    timeout = 2.0
    secrets = "mask"
    rules = [{ name = "iban", pattern = '\\b[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}\\b', action = "refuse" }]

Sharp edge: a part of a stream cannot be masked, so a match in a streamed answer ends the stream.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from gateway import CheckAnswer, CheckCall, CheckedAnswer, CheckedCall, Hook, hookimpl
from gateway.errors import ContentFiltered, InvalidValue

from .moderation import Moderator, ModeratorOptions
from .rules import Compiled, Found, Guard, Rule

if TYPE_CHECKING:
    from gateway import Upstream

T = TypeVar("T")


class Seen:
    """The texts of one run, with their masks."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.texts: list[str] = []

    def clean(self, text: str, stop: threading.Event) -> str:
        """As `Guard.clean`."""
        found = self._guard.clean(text, stop)
        self.texts.append(found)
        return found


class GuardHook(Hook, CheckCall, CheckAnswer):
    """Looks at every text, in threads of its own."""

    name = "guard"

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [hooks.NAME]."""

        secrets: Literal["mask", "refuse", "off"] = "mask"
        rules: Annotated[tuple[Rule, ...], Meta(max_length=100)] = ()
        mask: Annotated[str, Meta(min_length=1, max_length=100)] = "[removed]"
        threads: Annotated[int, Meta(ge=1, le=16)] = 1
        moderation: ModeratorOptions | None = None

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        rules = [Compiled(rule, options.mask) for rule in options.rules]
        self._request = Guard(rules, secrets=options.secrets, mask=options.mask, side="request")
        self._answer = Guard(rules, secrets=options.secrets, mask=options.mask, side="answer")
        self._moderator = None if options.moderation is None else Moderator(options.moderation, upstream)
        self._threads = ThreadPoolExecutor(options.threads, thread_name_prefix="guard")

    async def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check_call(self, call: CheckedCall) -> dict[str, Any] | None:
        """Refuse the request, or mask what is in it; a model judges the masked texts."""
        seen = Seen(self._request)
        try:
            changed = await self._apart(lambda stop: call.with_texts(lambda text: seen.clean(text, stop)))
            if self._moderator is not None:
                await self._moderator.check("request", seen.texts)
            return changed
        except Found as found:
            raise InvalidValue(f"The request has what the rule '{found.rule}' refuses", code="guarded") from None

    async def check_answer(self, call: CheckedCall, answer: CheckedAnswer) -> Any:
        """Refuse the answer, or mask what is in it; a part of a stream is refused."""
        seen = Seen(self._answer)
        try:
            if answer.is_part:
                changed, text = None, answer.document
                await self._apart(lambda stop: self._answer.check_part(answer.before, text, stop))
                seen.texts.append(text)
            else:
                changed = await self._apart(lambda stop: answer.with_texts(lambda text: seen.clean(text, stop)))
            if self._moderator is not None:
                await self._moderator.check("answer", seen.texts)
            return changed
        except Found as found:
            raise ContentFiltered(f"The answer has what the rule '{found.rule}' refuses", code="guarded") from None

    async def _apart(self, work: Callable[[threading.Event], T]) -> T:
        """Run `work` in a thread; if the hook's time is over, the thread stops at the next window."""
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, stop)
        finally:
            stop.set()


@hookimpl
def register_hooks(register: Callable[[type[Hook]], None]) -> None:
    register(GuardHook)
