"""The connection to Redis: a server at a configured URL, or the embedded one in `data_dir`.

::

    server = EmbeddedServer("var")              # only when no URL is configured; one process owns it
    await server.start()
    store = await Store.open(server.socket)     # or Store.open("redis://host:6379/0"), in each worker
    await store.link(slot_key).call("PING")

A fault that the operator can correct is a `StoreSetupError` with one line of text; an unreachable store is
`StoreUnavailable`.
"""

from gateway.store.embedded.server import EmbeddedServer, StoreEvent
from gateway.store.fault import StoreInUse, StoreSetupError
from gateway.store.store import Store
from gateway.store.url import parse_address

__all__ = ["EmbeddedServer", "Store", "StoreEvent", "StoreInUse", "StoreSetupError", "parse_address"]
