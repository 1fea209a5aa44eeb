"""The connection to Redis: a server at a configured URL, or the embedded one in `data_dir`.

::

    server = EmbeddedServer("var")              # only when no URL is configured; one process owns it
    await server.start()
    store = await Store.open(server.socket)     # or Store.open("redis://host:6379/0"), in each worker
    await store.link(slot_key).call("PING")

A fault that the operator can correct is a `StoreSetupError` with one line of text; an unreachable store is
`StoreUnavailable`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.store.embedded.server import EmbeddedServer as EmbeddedServer
    from gateway.store.embedded.server import StoreEvent as StoreEvent
    from gateway.store.fault import StoreInUse as StoreInUse
    from gateway.store.fault import StoreSetupError as StoreSetupError
    from gateway.store.store import Store as Store
    from gateway.store.url import parse_address as parse_address

# The module of each name, imported when the name is asked for: what a command prints needs no connection.
_HOME = {
    "EmbeddedServer": "embedded.server",
    "Store": "store",
    "StoreEvent": "embedded.server",
    "StoreInUse": "fault",
    "StoreSetupError": "fault",
    "parse_address": "url",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
