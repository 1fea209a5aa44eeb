"""Changes of the settings of API keys, and their rotation, each with its event in the audit trail."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Unpack

from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.key_editor import KeyEditor, Rotated
from gateway.admin.keys import require_key_rights
from gateway.admin.outbox import AuditOutbox

#: What an event does not show: figures that calls change.
COUNTED = ("spent", "period_spent", "last_used")


class KeyChanges:
    """What operators do with existing keys of any account, and owners with keys of theirs."""

    def __init__(self, editor: KeyEditor, outbox: AuditOutbox) -> None:
        self._editor = editor
        self._outbox = outbox

    async def edit(
        self,
        actor: Actor,
        key_id: str,
        *,
        name: str | None = None,
        clear: Collection[str] = (),
        **limits: Unpack[KeyLimits],
    ) -> KeyRecord:
        """`KeyEditor.edit`; needs the scope `keys`, or an owner of the account. The key's own user may rename it."""
        before = await self._editor.show(key_id)
        only_renames = not clear and all(value is None for value in limits.values())
        require_key_rights(actor, before.account, (before.user or "") if only_renames else "")
        after = await self._editor.edit(key_id, name=name, clear=clear, **limits)
        await self._record(actor, "edit", after, *changes(_shown(before), _shown(after)))
        return after

    async def rotate(self, actor: Actor, key_id: str, *, overlap: timedelta) -> Rotated:
        """`KeyEditor.rotate`; needs the scope `keys`, an owner of the account, or the key's own user."""
        before = await self._editor.show(key_id)
        require_key_rights(actor, before.account, before.user or "")
        rotated = await self._editor.rotate(key_id, overlap=overlap)
        after = {"replaced_by": rotated.new.id, "expires": rotated.old.json_form()["expires"]}
        await self._record(actor, "rotate", rotated.old, {"expires": before.json_form()["expires"]}, after)
        return rotated

    async def _record(
        self, actor: Actor, action: str, key: KeyRecord, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        event = new_event(actor, f"keys.{action}", f"key:{key.id}", account=key.account, before=before, after=after)
        await self._outbox.add(event)


def _shown(key: KeyRecord) -> dict[str, Any]:
    return {name: value for name, value in key.json_form().items() if name not in COUNTED}
