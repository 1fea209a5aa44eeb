"""Posts events to the operator's webhook. Redirects are not followed, and the body of an answer is not used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime

from msgspec import Struct

from gateway.config.notify_settings import url_problem
from gateway.config.secret import Secret, SecretError
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from gateway.notifications.events import Event
from gateway.notifications.signatures import BadSecret, signed_headers, signing_key

TIMEOUTS = Timeouts(connect=5.0, first_byte=15.0, idle=15.0, total=20.0)  # seconds
LONGEST_WAIT = 3600.0  # seconds that a Retry-After is obeyed
GONE = 410


class Attempt(Struct, frozen=True):
    """The result of one attempt; `problem` is empty if the event was taken."""

    status: int = 0  # 0: no answer
    problem: str = ""
    is_final: bool = False  # another attempt would not help
    retry_after: float = 0.0  # seconds that the receiver asked for

    @property
    def is_taken(self) -> bool:
        """Whether the receiver has the event."""
        return not self.problem


class Webhook:
    """One receiver. The URL and the secrets are read at each attempt, so that a rotated file is used."""

    def __init__(self, url: Secret, secrets: Sequence[Secret]) -> None:
        self._url = url
        self._secrets = secrets
        self._client = Upstream(keepalive=0.0)

    async def send(self, event: Event) -> Attempt:
        """Post an event; a failure is a result."""
        try:
            url = self._url.reveal()
            if problem := url_problem(url):
                return Attempt(problem=f"notify.webhook: {problem}")
            keys = [signing_key(secret.reveal()) for secret in self._secrets]
        except (SecretError, BadSecret) as error:
            return Attempt(problem=str(error))
        body = event.body()
        headers = {"Content-Type": "application/json", **signed_headers(keys, event.id, int(time.time()), body)}
        try:
            async with asyncio.timeout(TIMEOUTS.total):
                async with await self._client.send(
                    "POST", url, headers=headers, body=body, timeouts=TIMEOUTS
                ) as answer:
                    return _result(answer.status, answer.headers.get("retry-after") or "")
        except TimeoutError:
            return Attempt(problem=f"no answer within {TIMEOUTS.total:.0f} s")
        except GatewayError as error:
            return Attempt(problem=_reason(error))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def unusable_secrets(settings: Settings) -> Iterator[tuple[str, str]]:
    """What keeps the webhook of these settings from being used now: the key and the problem."""
    url = settings.webhook_url
    try:
        if url is not None and (problem := url_problem(url.reveal())):
            yield "webhook", problem
    except SecretError as error:
        yield "webhook", str(error)
    for secret in settings.webhook_secrets:
        try:
            signing_key(secret.reveal())
        except (SecretError, BadSecret) as error:
            yield "secrets", str(error)


def _result(status: int, retry_after: str) -> Attempt:
    if 200 <= status < 300:
        return Attempt(status)
    if 300 <= status < 400:
        return Attempt(status, f"status {status}: redirects are not followed")
    return Attempt(status, f"status {status}", status == GONE, _seconds(retry_after))


def _seconds(text: str) -> float:
    """The seconds of a Retry-After; 0 for none."""
    try:
        wait = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(wait, 0.0), LONGEST_WAIT)


def _reason(error: GatewayError) -> str:
    """Why there was no answer, in terms of the receiver: the messages of the client speak of model providers."""
    name = type(error).__name__.removeprefix("Upstream")
    return f"{name}: {error.detail}" if error.detail else name
