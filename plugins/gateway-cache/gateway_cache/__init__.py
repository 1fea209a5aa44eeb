"""Answers repeated calls from a Redis or Valkey server of its own.

::

    [hooks.cache]
    plugin = "cache"
    on_failure = "open"
    price_factor = 0.1
    url = "redis://127.0.0.1:6380"

Sharp edge: two equal calls at once are both answered by a provider; the answer that ends later is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway import AnswerCall, CheckedCall, Hook, KeepAnswer, Secret, WholeAnswer, hookimpl

from .canonical import Scope, digest, is_deterministic, question, scope_of
from .meanings import Meanings, Semantic

if TYPE_CHECKING:
    from gateway import Upstream

CONNECTIONS: Final = 16  # of each worker
#: Calls that have a question with words; others are compared as they are.
_COMPARED: Final = frozenset({"chat", "completions", "messages", "responses"})


class CacheHook(Hook, AnswerCall, KeepAnswer):
    """One cache."""

    name = "cache"

    class Options(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [hooks.NAME]."""

        url: Annotated[str, Meta(pattern=r"^(rediss?|unix)://")]
        password: Secret | None = None
        prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_-]{1,64}$")] = "gateway-cache:"
        ttl: Annotated[int, Meta(ge=1, le=30 * 86_400)] = 3600  # seconds
        max_bytes: Annotated[int, Meta(ge=64, le=1 << 20)] = 262_144  # of a stored answer
        scope: Scope = "account"
        requests: Literal["all", "deterministic"] = "all"
        semantic: Semantic | None = None

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        password = None if options.password is None else options.password.reveal()
        pool = BlockingConnectionPool.from_url(
            options.url,
            password=password,
            max_connections=CONNECTIONS,
            timeout=1.0,
            socket_connect_timeout=1.0,
            socket_timeout=2.0,
            retry=Retry(NoBackoff(), 1),  # a connection that the server has closed
        )
        self._redis: Redis = Redis.from_pool(pool)
        self._meanings = None if options.semantic is None else Meanings(options.semantic, upstream)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def answer_call(self, call: CheckedCall) -> WholeAnswer | None:
        """The stored answer of the same request, or of one of nearly the same meaning."""
        if not self._serves(call, "no-store", "no-cache"):
            return None
        found = await self._stored(digest(call, self.options.scope))
        if found is None and self._meanings is not None and call.endpoint in _COMPARED:
            found = await self._near(call, self._meanings)
        return None if found is None else WholeAnswer(found)

    async def keep_answer(self, call: CheckedCall, answer: WholeAnswer) -> None:
        """Store an answer."""
        options = self.options
        if not self._serves(call, "no-store") or len(answer.content) > options.max_bytes:
            return
        name = digest(call, options.scope)
        await self._redis.set(self._key(name), answer.content, ex=options.ttl)
        if self._meanings is not None and (asked := question(call, options.scope)) is not None:
            self._meanings.learn(call.request_id, scope_of(call, options.scope), asked.frame, name)

    async def _near(self, call: CheckedCall, meanings: Meanings) -> bytes | None:
        asked, scope = question(call, self.options.scope), scope_of(call, self.options.scope)
        if asked is None:
            return None
        nearest = await meanings.nearest(call.request_id, scope, asked.frame, asked.text)
        if nearest is None:
            return None
        found = await self._stored(nearest)
        if found is None:
            meanings.forget(scope, nearest)
        return found

    def _serves(self, call: CheckedCall, *unless: str) -> bool:
        """Whether the cache is for this call."""
        if call.cache_control:
            said = {part.strip().lower() for part in call.cache_control.split(",")}
            if not said.isdisjoint(unless):
                return False
        return self.options.requests == "all" or is_deterministic(call)

    async def _stored(self, name: str) -> bytes | None:
        found = await self._redis.get(self._key(name))
        return found if isinstance(found, bytes) else None

    def _key(self, name: str) -> str:
        return f"{self.options.prefix}{name}"


@hookimpl
def register_hooks(register: Callable[[type[Hook]], None]) -> None:
    register(CacheHook)
