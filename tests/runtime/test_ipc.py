"""The channel between supervisor and worker: whole messages in order, and the end of the other side."""

from __future__ import annotations

import socket

from gateway.runtime.ipc import Channel, Message
from tests.polling import until


async def test_messages_arrive_complete_and_in_order_and_the_end_is_detected() -> None:
    ours, theirs = socket.socketpair()
    received: list[Message] = []
    closed: list[bool] = []
    sender = await Channel.open(ours, lambda message: None, lambda: None)
    await Channel.open(theirs, received.append, lambda: closed.append(True))
    big = bytes(range(256)) * 4000
    sender.send("small")
    sender.send("big", big)
    sender.send("last", b"x")
    await until(lambda: len(received) == 3)
    assert [(message.name, message.payload) for message in received] == [("small", b""), ("big", big), ("last", b"x")]
    sender.close()
    await until(lambda: closed)
    sender.send("into the void")
