"""An event of the audit trail: who did what to which object, before and after.

Events never hold a secret, nor an e-mail address or name of a person: `personal` in `after` lists the fields of that
kind that were set. A user is known by id, so erasing the person leaves the trail whole and anonymous.
"""

from __future__ import annotations

import secrets
from typing import Any

from msgspec import Struct, json

from gateway.admin.actor import Actor
from gateway.admin.times import from_micros, now


class AuditEvent(Struct, frozen=True):
    """One event; `at` in microseconds since 1970."""

    id: str  # grows with the time
    at: int
    actor_kind: str
    actor_id: str
    action: str  # such as `accounts.credit`
    object: str  # `KIND:ID`, such as `account:acme`
    account: str  # the account that the object belongs to, or ""
    before: dict[str, Any]
    after: dict[str, Any]
    address: str

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway audit-trail`."""
        return {
            "id": self.id,
            "at": from_micros(self.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "actor": f"{self.actor_kind}:{self.actor_id}",
            "action": self.action,
            "object": self.object,
            "account": self.account,
            "before": self.before,
            "after": self.after,
            "address": self.address,
        }

    def row(self) -> dict[str, Any]:
        """The row of the table `audit_events`."""
        row = {name: getattr(self, name) for name in self.__struct_fields__}
        return row | {"before": json.encode(self.before).decode(), "after": json.encode(self.after).decode()}


def new_event(
    actor: Actor,
    action: str,
    object_: str,
    *,
    account: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEvent:
    """An event of this moment."""
    at = now()
    return AuditEvent(
        f"evt_{at:015x}{secrets.token_hex(8)}",
        at,
        actor.kind,
        actor.id,
        action,
        object_,
        account,
        before or {},
        after or {},
        actor.address,
    )


def changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides, with only the fields that differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ({name: before.get(name) for name in names}, {name: after.get(name) for name in names})
