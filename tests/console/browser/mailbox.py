"""A mail server on the loopback, and the links in the messages that it got."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP

from gateway.config.console_settings import MailSettings
from tests.people.test_mail_addresses import Inbox


class Mailbox(Inbox):
    """What arrived."""

    def link_to(self, email: str) -> str:
        """The link in the only message; it went to this address and to no other one."""
        [(recipients, content)] = self.received
        self.received.clear()
        assert recipients == [email]
        text = message_from_bytes(content, policy=policy.default).get_content()
        [link] = re.findall(r"http\S+token=\S+", text)
        return str(link)


@asynccontextmanager
async def mailbox() -> AsyncIterator[tuple[Mailbox, MailSettings]]:
    """A server without TLS, and its settings."""
    received, loop = Mailbox(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(received, hostname="test", loop=loop), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield received, MailSettings(host="127.0.0.1", port=port, sender="gw@example.com", starttls=False)
    finally:
        server.close()
