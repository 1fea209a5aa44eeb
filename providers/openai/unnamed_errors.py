"""Errors of servers that answer with status 200 and name no `error`: by their other keys.

`raise_unnamed_error(data, hidden)` is for an answer or an event that holds no choices. MiniMax writes
`base_resp.status_code`, DashScope and SiliconFlow `code` and `message`, FastAPI `detail`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.plugins.upstream_errors import error_of_document

from .._shared.documents import json_object

_TEXTS = ("message", "msg", "error_msg", "detail")


def raise_unnamed_error(data: bytes, hidden: Sequence[str]) -> None:
    """Raise the error that a document without choices tells; return if it tells none."""
    document = json_object(data)
    inner = document.get("base_resp")
    if isinstance(inner, dict) and inner.get("status_code"):
        raise error_of_document(_without_own_codes(inner), hidden)
    if document.get("error"):
        raise error_of_document(document["error"], hidden)
    if _tells_failure(document):
        raise error_of_document(document, hidden)


def _without_own_codes(inner: dict[str, Any]) -> dict[str, Any]:
    """MiniMax numbers its errors from 1000, which are no HTTP statuses: its words decide."""
    return {"status_msg": inner.get("status_msg") or "", "type": f"base_resp {inner['status_code']}"}


def _tells_failure(document: dict[str, Any]) -> bool:
    if not any(document.get(name) for name in _TEXTS):
        return False
    kind = document.get("type")
    failed = isinstance(kind, str) and "error" in kind.lower()
    return failed or bool(document.get("code") or document.get("detail") or document.get("success") is False)
