"""Logging: one access line per request as JSON or text, and lines for operators; nothing secret ever reaches either.

`configure()` sets up the process, `AccessLog` writes the requests. Both write to `stderr`, which never blocks: a log
without a reader loses lines, and the gateway serves on. `Redactor` is the last fence: it hides anything shaped like a
key or a bearer credential in whatever passes, tracebacks included. Sharp edge: fields come from the gateway's own
records; caller-supplied text is only ever the client request id, which is validated before.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
import traceback
from collections.abc import Hashable
from typing import Any, TextIO

import msgspec

from gateway.log_form import TEXT, encode_line, is_json, json_line
from gateway.log_output import LogOutput
from gateway.redaction import redact as redact

gateway_log = logging.getLogger("gateway")

LONGEST_ROUTE = len("/v1/audio/transcriptions")
_MILLISECONDS = tuple(f".{number:03d}Z" for number in range(1000))  # formatting one takes 0.3 µs
MAX_PATH = 200  # characters of a path that are logged
FLUSH_WITHIN = 1.0  # seconds that the end of a process waits for the reader of its log
WARN_EVERY = 60.0  # seconds between two warnings about one subject
MAX_SUBJECTS = 1000


class Redactor(logging.Formatter):
    """A formatter whose output cannot carry credentials, nor, unless `quote`, what exceptions say.

    A plugin's exception may quote a caller's message or the operator's key, in no shape that a pattern knows.
    """

    def __init__(self, form: str, *, quote: bool = False, as_json: bool = False) -> None:
        super().__init__(form)
        self.quote = quote
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        if not self._json:
            return redact(super().format(record))
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        return json_line(record, record.getMessage(), traceback.strip())

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging names it so
        """Where it happened and what kind it was; `quote` adds the words."""
        return super().formatException(ei) if self.quote else "\n".join(_places(ei[1]))


def _places(error: BaseException | None) -> list[str]:
    """A traceback without the exceptions' own words, the first cause first."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines: list[str] = []
    for link in reversed(chain):
        lines += [
            "Traceback (most recent call last):",
            *(text.rstrip() for text in traceback.format_tb(link.__traceback__)),
        ]
        lines.append(type(link).__name__)
    return lines


def _gap_line(dropped: int) -> bytes:
    """The line that stands for lines that were dropped, in the form of the others."""
    text = "%d lines of the log were dropped: nobody read it"
    record = logging.LogRecord("gateway", logging.WARNING, "", 0, text, (dropped,), None)
    handlers = logging.getLogger().handlers
    line = handlers[0].format(record) if handlers else record.getMessage()
    return f"{line}\n".encode(errors="backslashreplace")


#: The log of this process.
stderr = LogOutput(2, gap_line=_gap_line)


class OutputHandler(logging.Handler):
    """Writes each record to an output, which does not block."""

    def __init__(self, output: LogOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record here, because its arguments may change later."""
        try:
            self._output.write(self.format(record).encode(errors="backslashreplace") + b"\n")
        except Exception:
            # As every handler of `logging`: a log call never fails.
            self.handleError(record)

    def flush(self) -> None:
        """Called at the end of the process."""
        self._output.flush(within=FLUSH_WITHIN)


def configure(level: str = "info", *, form: str = "text", access: bool = True, stream: TextIO | None = None) -> None:
    """Log to stderr, or to `stream`, in one line per event; called once per process.

    `form` is text, json or auto, see `is_json`.
    """
    handler: logging.Handler = OutputHandler(stderr) if stream is None else logging.StreamHandler(stream)
    as_json = is_json(form, access=access, stream=stream or sys.stderr)
    handler.setFormatter(Redactor(TEXT, quote=level.lower() == "debug", as_json=as_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("tornado.access").setLevel(logging.ERROR)


def set_level(level: str) -> None:
    """Change the level of a configured process, for example at a reload."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        if isinstance(handler.formatter, Redactor):
            handler.formatter.quote = level.lower() == "debug"


class AccessLine(msgspec.Struct, omit_defaults=True):
    """One request as the access log shows it; durations in milliseconds, cost in currency units as text."""

    request_id: str
    method: str
    path: str
    status: int
    ms: float
    at: str = ""
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
    organization: str = ""  # what the caller says of itself, as are the next two: never used for anything
    project: str = ""
    sdk: str = ""
    detail: str = ""


class AccessLog:
    """One JSON line per request, written in batches: 1.4 µs a line, where the logging module takes 19.

    Sharp edge: a process killed outright loses the lines of its last tenth of a second; no money rests on them.
    """

    def __init__(self, *, enabled: bool = True, output: LogOutput = stderr) -> None:
        self.enabled = enabled
        self._output = output
        self._lines: list[bytes] = []
        self._encoder = msgspec.json.Encoder()
        self._second = 0
        self._prefix = ""

    def write(self, line: AccessLine) -> None:
        """Queue one line for the next batch."""
        line.at = self._now()
        if len(line.path) > LONGEST_ROUTE:  # the caller's own text
            line.path = redact(line.path[:MAX_PATH])
        if line.client_request_id:
            line.client_request_id = redact(line.client_request_id)  # some callers put a key there
        if line.detail:
            line.detail = redact(line.detail)
        if not self._lines:
            asyncio.get_running_loop().call_later(0.1, self.flush)
        self._lines.append(encode_line(self._encoder, line))

    def flush(self) -> None:
        """Pass what is queued to the output."""
        lines, self._lines = self._lines, []
        if lines:
            count = len(lines)
            lines.append(b"")
            self._output.write(b"\n".join(lines), count)

    def _now(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._prefix = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self._prefix + _MILLISECONDS[int((now - second) * 1000)]


class PluginLog:
    """What plugins did wrong, by name."""

    def provider_failed(self, provider: str, error: BaseException) -> None:
        """A provider raised something that is no Upstream error."""
        gateway_log.error("provider %s raised %s", provider, type(error).__name__, exc_info=error)

    def provider_stuck(self, provider: str, seconds: float) -> None:
        """A task with a provider's code has not ended `seconds` after it was cancelled."""
        gateway_log.error("provider %s does not end a call %g s after it was cancelled", provider, seconds)

    def check_failed(self, hook: str, kind: str, outcome: str, error: BaseException | None, failures: int) -> None:
        """An asynchronous hook gave no result, so often since the last such line."""
        more = f" ({failures} times since the last such line)" if failures > 1 else ""
        what = "" if error is None else f": {redact(type(error).__name__ + ' ' + str(error)[:1000])}"
        gateway_log.error("hook %s: %s in %s%s%s", hook, outcome, kind, what, more)

    def hook_failed(self, plugin: str, hook: str, error: BaseException) -> None:
        """A hook raised."""
        gateway_log.error("plugin %s raised %s in %s", plugin, type(error).__name__, hook, exc_info=error)

    def records_lost(self, plugin: str, records: int) -> None:
        """The queue of a plugin's `call_settled` hook is full."""
        gateway_log.error(
            "plugin %s is too slow in call_settled: %d records of calls were lost for it", plugin, records
        )

    def hook_left(self, plugin: str, seconds: float) -> None:
        """A hook did not return at the end of the process."""
        gateway_log.error("plugin %s does not end its hooks within %g s; ending without it", plugin, seconds)

    def not_loaded(self, plugin: str, reason: str) -> None:
        """A plugin is out of service."""
        gateway_log.error("plugin %s is not loaded: %s", plugin, reason)


class WarningLimit:
    """Limits a warning to one per subject in `WARN_EVERY` seconds, with the number of the events it stands for."""

    def __init__(self) -> None:
        self._subjects: dict[Hashable, tuple[float, int]] = {}  # time of the last warning, events since then

    def due(self, subject: Hashable, now: float) -> int:
        """Count an event at `now`, in monotonic seconds: the events that a warning stands for; 0 for no warning."""
        last, events = self._subjects.get(subject, (-math.inf, 0))
        if now - last < WARN_EVERY:
            self._subjects[subject] = last, events + 1
            return 0
        if len(self._subjects) >= MAX_SUBJECTS:
            self._subjects.clear()  # reloads may replace the subjects; some warnings are then early
        self._subjects[subject] = now, 0
        return events + 1
