"""The session in a request of another dialect: where its clients write the name of their conversation."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct

_OLD_USER_ID = re.compile(r"_session_([0-9a-f-]{36})\Z")  # user_…_account_…_session_…


class _Named(Struct):
    session_id: str | None = None


_decoder = msgspec.json.Decoder(_Named)


def session_of_metadata(metadata: Raw | None) -> str:
    """The session in `client_metadata` of a Responses request, as Codex writes it; empty for none."""
    return _read(bytes(metadata)) if metadata is not None else ""


def session_of_user(user_id: str | None) -> str:
    """The session in `metadata.user_id` of a Messages request, as Claude Code writes it; empty for none."""
    if not user_id:
        return ""
    if user_id.startswith("{"):
        return _read(user_id.encode("utf-8", "surrogatepass"))
    found = _OLD_USER_ID.search(user_id)
    return found[1] if found is not None else ""


def _read(document: bytes) -> str:
    try:
        return _decoder.decode(document).session_id or ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
