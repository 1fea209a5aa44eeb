"""The form of operators' lines: text for people, or one JSON object per line, as access lines are."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import msgspec

from gateway.redaction import redact

TEXT: Final = "%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"
_encoder = msgspec.json.Encoder()


class JsonLine(msgspec.Struct, omit_defaults=True):
    """One operator's line; `at` is UTC."""

    at: str
    level: str  # debug, info, warning, error, critical
    logger: str
    pid: int
    message: str
    traceback: str = ""


def json_line(record: logging.LogRecord, message: str, traceback: str) -> str:
    """The line of a record, without credentials."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    line = JsonLine(
        f"{whole}.{int(record.msecs):03d}Z",
        record.levelname.lower(),
        record.name,
        record.process or 0,
        redact(message),
        redact(traceback),
    )
    return encode_line(_encoder, line).decode()


def encode_line(encoder: msgspec.json.Encoder, line: msgspec.Struct) -> bytes:
    """The line as JSON; a lone surrogate, as a plugin's text may have, becomes `?`."""
    try:
        return encoder.encode(line)
    except UnicodeEncodeError:
        fields = msgspec.structs.asdict(line).items()
        texts = {name: text.encode(errors="replace").decode() for name, text in fields if isinstance(text, str)}
        return encoder.encode(msgspec.structs.replace(line, **texts))


def is_json(form: str, *, access: bool, stream: Any) -> bool:
    """Whether lines are JSON: with `auto`, if access lines are written and nobody reads them on a terminal."""
    if form != "auto":
        return form == "json"
    return access and not stream.isatty()
