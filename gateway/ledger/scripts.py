"""The ledger's Lua scripts.

`Scripts.load()` reads gateway/ledger/lua once per process. A script is the text of its shared parts (`SHARED`) and of
its own file.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from msgspec import Struct

from gateway.store.command import Script

# The shared parts at the start of each script; other scripts have none. A script has only the parts it needs, because
# every call of a script creates all its functions again.
SHARED = {
    "admit": ("bucket", "meter", "period", "member", "session", "hold", "line", "charged", "room", "expired", "rules"),
    "explain": ("bucket", "meter", "period", "member", "session", "hold", "room", "rules"),
    "replay": ("bucket", "meter", "period", "member", "session", "hold", "room", "rules"),
    "settle": ("bucket", "period", "member", "session", "line", "charged", "room"),
    "beat": ("member", "hold"),
    "extend": ("period", "member", "session", "hold", "room"),
    "reclaim": ("period", "member", "session", "hold", "line", "charged", "room", "expired"),
    "credit": ("line",),
    "refund": ("period", "member", "session", "line", "charged"),
    "limit": ("period",),
    "count": ("period",),
    "edit_key": ("period", "budget"),
    "edit_member": ("period", "budget"),
    "count_budget": ("period",),
    "open": ("line",),
    "snapshot": ("sums",),
    "key_page": ("sums",),
    "export": ("member",),
    "claim": ("period", "member", "session", "hold", "line", "charged"),
    "keep": ("kept",),
    "forget": ("kept",),
}


class Scripts(Struct, frozen=True):
    """Every script, by the name of its file."""

    admit: Script
    settle: Script
    beat: Script
    extend: Script
    reclaim: Script
    credit: Script
    refund: Script
    open: Script
    snapshot: Script
    key_page: Script
    explain: Script
    replay: Script

    @classmethod
    def load(cls) -> Scripts:
        """Read the scripts from the package."""
        return cls(**{name: load_script(name) for name in cls.__struct_fields__})


@cache
def load_script(name: str) -> Script:
    """One script with its shared parts; it is read once in a process."""
    folder = resources.files("gateway.ledger") / "lua"
    parts = (*SHARED.get(name, ()), name)
    return Script("".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts))
