"""The lines of the files that a batch ends with, in the API's form."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import Raw

from gateway.batches.batch import BatchError
from gateway.batches.lines import Line
from gateway.batches.results import Result
from gateway.ledger.settlement_writer import charge_entry
from gateway.runtime.batches.line_call import Attempt
from gateway.runtime.batches.verdict import OK

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder(Raw)


def answered(line: Line, attempt: Attempt) -> Result:
    """The result of a line that has an answer, with the settlement of its call."""
    call, entry = attempt.call, None
    if call is not None and call.record is not None and attempt.cost:
        entry = charge_entry(call.hold, call.record)
    response = {"status_code": attempt.status, "request_id": attempt.request_id, "body": _on_one_line(attempt.body)}
    return Result(
        line.number, attempt.status == OK, attempt.cost, entry, _document(line.custom_id, response=response, error=None)
    )


def _on_one_line(body: bytes) -> Raw:
    """A body as JSON without line breaks, which end a line of the file; a body that is no JSON is a text."""
    try:
        _any.decode(body)
        return Raw(msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body)
    except (msgspec.MsgspecError, RecursionError):
        return Raw(_encode(body.decode("utf-8", "replace")))


def not_run(line: Line, reason: BatchError) -> Result:
    """The result of a line that was not run, because its batch has ended."""
    error = {"code": reason.code, "message": reason.message}
    return Result(line.number, False, 0, None, _document(line.custom_id, response=None, error=error))


def _document(custom_id: str, *, response: Any, error: Any) -> Raw:
    document = {
        "id": f"batch_req_{secrets.token_hex(16)}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return Raw(_encode(document))
