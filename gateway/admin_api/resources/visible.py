"""The account that an actor sees on a route without one in its path."""

from __future__ import annotations

from gateway.admin_api.call import Call
from gateway.errors import NotFound


def visible_account(call: Call, wanted: str) -> str:
    """The account that is asked for, or the only one that the token may see; NotFound for another one."""
    own = call.actor.account
    if own and wanted not in ("", own):
        raise NotFound(f"no account {wanted!r}")
    return wanted or own
