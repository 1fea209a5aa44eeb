"""One realtime session at a vendor, as a provider opens it."""

from __future__ import annotations

import abc


class RealtimeSession(abc.ABC):
    """Events in both directions: JSON objects in UTF-8, as bytes.

    One task calls `send`, and one calls `receive`. Both must buffer little: `send` waits while the vendor does not
    read, and nothing is read from the vendor while nobody calls `receive`.
    """

    @abc.abstractmethod
    async def send(self, event: bytes) -> None:
        """Send an event of the client to the vendor; raises an Upstream error if the session has ended."""

    @abc.abstractmethod
    async def receive(self) -> bytes:
        """The next event of the vendor; raises UpstreamTruncated if the vendor has ended the session.

        A receiver that is cancelled loses no event.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End the session at the vendor at once, without waiting. May be called again."""
