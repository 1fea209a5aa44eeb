"""The last failed attempts at each provider, for the page of the provider.

A worker notes them in memory and appends them once a second to a stream of the provider in the store, which keeps the
newest `KEPT` of all workers. Of more failures in a second only the last `MOST_AT_ONCE` of each provider are sent: an
outage costs the store no more than that. A failure has names of the configuration and codes of the gateway, and no text
of an upstream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from gateway.billing.call_record import CallRecord
from gateway.errors.attempt_answer import UPSTREAM_CODES, AttemptAnswer
from gateway.ledger.batch_sender import BatchSender
from gateway.ledger.line_meta import NO_ERRORS
from gateway.store.links import Links

STREAM = "failures:"  # and the provider
KEPT = 50
KEPT_FOR = 7 * 24 * 3600  # seconds after the last one
MOST_AT_ONCE = 10
EVERY = 1.0  # seconds


class Failure(Struct, frozen=True, omit_defaults=True):
    """An attempt that failed; `at` is in Unix seconds, `status` that of the upstream's answer, 0 for none."""

    at: float
    request_id: str
    account: str
    model: str  # of the configuration
    code: str
    status: int = 0
    ms: int = 0
    served: bool = False  # whether another attempt served the call


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Failure)


class RecentFailures:
    """The failures of one worker that are not in the store yet."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: dict[str, deque[Failure]] = {}
        self.sender = BatchSender(self.send, EVERY)

    def note(self, record: CallRecord, failures: Iterable[AttemptAnswer]) -> None:
        """A call has ended of which attempts failed; `failures` are the attempts before the last one."""
        now, served, found = time.time(), record.outcome in NO_ERRORS, list(failures)
        if record.outcome in UPSTREAM_CODES and not (found and found[-1].provider == record.provider):
            code, seconds = record.outcome, record.duration  # a stream that was cut
            found.append(AttemptAnswer.of(record.provider, record.served_model, code, status=0, seconds=seconds))
        for one in found:
            if one.code not in UPSTREAM_CODES:
                continue  # it served, or the gateway or the caller ended it
            waiting = self._waiting.setdefault(one.provider, deque(maxlen=MOST_AT_ONCE))
            names = (record.request_id, record.account, one.model, one.code)
            waiting.append(Failure(now, *names, one.status, one.ms, served))

    async def send(self) -> None:
        """Append what waits; GatewayError, and then the rest is kept for the next time."""
        while self._waiting:
            provider, failures = self._waiting.popitem()
            key = f"{STREAM}{provider}"
            link = self._links.link(key)
            for one in failures:
                await link.call("XADD", key, "MAXLEN", KEPT, "*", "f", _encoder.encode(one))
            await link.call("EXPIRE", key, KEPT_FOR)


async def read_failures(links: Links, provider: str, most: int = KEPT) -> list[Failure]:
    """The newest failures of a provider, the newest first; GatewayError."""
    key, found = f"{STREAM}{provider}", []
    for _, fields in await links.link(key).call("XREVRANGE", key, "+", "-", "COUNT", most):
        try:
            found.append(_decoder.decode(fields[1]))
        except (ValueError, IndexError):
            continue  # of another release
    return found
