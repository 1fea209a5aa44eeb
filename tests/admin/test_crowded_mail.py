"""A mail server that does not answer delays e-mails only, and those of one sender before those of others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.admin.mail import AT_ONCE, CROWDED, MOST_OF_SENDER, SHARE, SmtpMail
from gateway.admin.mail_tasks import REQUESTED, MailTasks
from gateway.config.loader import parse
from gateway.errors import TooManyRequests
from gateway.web.work_threads import FairThreads
from tests.polling import until

CROWD, PERSON = "198.51.100.1", "192.0.2.1"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing; those who wait for it go on when it is closed."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield server


def mail_of(server: socket.socket) -> SmtpMail:
    port = server.getsockname()[1]
    return SmtpMail(parse({"mail": {"host": "127.0.0.1", "port": port, "from": "gw@example.com"}}))


@pytest.mark.holds("configuration.md#mail-1")
async def test_default_threads_are_free_while_many_messages_wait_for_a_silent_server(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.admin.mail.TIMEOUT", 60.0)
    mail = mail_of(silent)
    sending = [asyncio.create_task(mail.send("ann@example.com", "a", "b\n", sender=f"s{n}")) for n in range(12)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30.0):
        assert await asyncio.to_thread(lambda: 7) == 7
    assert not any(task.done() for task in sending)
    silent.close()
    await asyncio.gather(*sending)


@pytest.mark.holds("configuration.md#mail-1")
async def test_messages_of_a_sender_beyond_those_that_may_wait_are_not_sent(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.admin.mail.TIMEOUT", 60.0)
    mail = mail_of(silent)
    sending = [
        asyncio.create_task(mail.send("ann@example.com", "a", "b\n", sender=CROWD))
        for _ in range(SHARE + MOST_OF_SENDER)
    ]
    await asyncio.sleep(0)
    refused = await mail.send("ann@example.com", "a", "b\n", sender=CROWD)
    assert (refused.is_sent, refused.problem, refused.is_final) == (False, CROWDED, False)
    silent.close()
    await asyncio.gather(*sending)


@pytest.mark.holds("configuration.md#mail-1")
async def test_sender_with_a_share_of_the_threads_leaves_some_to_another_one() -> None:
    go_on = threading.Event()
    threads = FairThreads("test", AT_ONCE, share=SHARE, refusal=CROWDED)
    crowd = [asyncio.create_task(threads.run(CROWD, go_on.wait, 60.0)) for _ in range(20)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(20.0):
            assert await threads.run(PERSON, lambda: "sent") == "sent"
    finally:
        go_on.set()
    assert all(await asyncio.gather(*crowd))
    threads.close()


@pytest.mark.holds("configuration.md#mail-1")
async def test_network_has_few_messages_under_way_and_all_networks_together_some_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, tasks, done = asyncio.Event(), MailTasks(), list[str]()

    async def work() -> None:
        await go_on.wait()
        done.append("sent")

    for _ in range(REQUESTED.most):
        tasks.begin(CROWD, work)
    with pytest.raises(TooManyRequests, match="E-mails that your network asked for"):
        tasks.begin(CROWD, work)
    for network in range(1, 8):
        for _ in range(REQUESTED.most):
            tasks.begin(f"192.0.2.{network}", work)
    assert REQUESTED.most_of_site == 8 * REQUESTED.most
    with pytest.raises(TooManyRequests, match="Too many e-mails wait"):
        tasks.begin("203.0.113.1", work)
    go_on.set()
    await tasks.finish()
    assert len(done) == REQUESTED.most_of_site
    tasks.begin(CROWD, work)
    await until(lambda: len(done) == 8 * REQUESTED.most + 1)
