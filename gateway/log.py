"""Logging: one access line per request as JSON or text, and lines for operators; nothing secret ever reaches either.

`configure()` sets up the process. `Redactor` is the last fence: it hides anything shaped like a key or a bearer credential
in whatever passes, tracebacks included. Sharp edge: fields come from the gateway's own records; caller-supplied text is
only ever the client request id, which is validated before.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TextIO

import msgspec

access_log = logging.getLogger("gateway.access")
gateway_log = logging.getLogger("gateway")

_SECRET = re.compile(r"(sk-|Bearer\s+|Basic\s+|(?:api[-_]?key|token|password|secret)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;)}\]]+", re.I)


def redact(text: str) -> str:
    """`text` with everything that looks like a credential hidden."""
    return _SECRET.sub(r"\1***", text)


class Redactor(logging.Formatter):
    """A formatter whose output cannot carry credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Log to stderr in one line per event; called once per process."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Redactor("%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("tornado.access").setLevel(logging.ERROR)


class AccessLine(msgspec.Struct, omit_defaults=True):
    """One request as the access log shows it; durations in milliseconds, cost in currency units as text."""

    request_id: str
    method: str
    path: str
    status: int
    ms: float
    outcome: str = "ok"
    account: str = ""
    key: str = ""
    model: str = ""
    provider: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost: str = ""
    attempts: int = 0
    stream: bool = False
    client_request_id: str = ""
    detail: str = ""


_encoder = msgspec.json.Encoder()


def access(line: AccessLine) -> None:
    """Write one access line, if anyone listens."""
    if access_log.isEnabledFor(logging.INFO):
        access_log.info("%s", _encoder.encode(line).decode())


class PluginLog:
    """What plugins did wrong, by name."""

    def provider_failed(self, provider: str, error: BaseException) -> None:
        """A provider raised something that is no Upstream error."""
        gateway_log.error("provider %s raised %s", provider, type(error).__name__, exc_info=error)

    def hook_failed(self, plugin: str, hook: str, error: BaseException) -> None:
        """A hook raised."""
        gateway_log.error("plugin %s raised %s in %s", plugin, type(error).__name__, hook, exc_info=error)

    def not_loaded(self, plugin: str, reason: str) -> None:
        """A plugin is out of service."""
        gateway_log.error("plugin %s is not loaded: %s", plugin, reason)

