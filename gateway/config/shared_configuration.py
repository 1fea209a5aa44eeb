"""What machines with one store should have in common, as a short hash: the same calls then cost and do the same.

Addresses, ports, folders, sizes and the log belong to a machine and are left out. So are secrets: only their references
are compared, and a literal of the demo counts as hidden.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import msgspec

from gateway.config.secret import Secret
from gateway.config.settings import SECTIONS, Settings

LENGTH: Final = 12  # characters of the hash
#: Sections and keys that belong to a machine.
OWN_SECTIONS: Final = frozenset({"metrics", "log", "telemetry"})
OWN_KEYS: Final = {
    "server": frozenset(
        [
            *("host", "port", "workers", "trusted_proxies", "proxy_protocol", "shutdown_delay", "drain_timeout"),
            *("tls_cert", "tls_key", "tls_client_ca"),
        ]
    ),
    "server.limits": frozenset(
        {"spool_dir", "max_connections", "accept_queue", "max_memory", "max_bodies", "max_spool"}
    ),
    "store": frozenset({"url", "data_dir"}),
    "database": frozenset({"url"}),
    "console": frozenset({"enabled", "pages", "host", "port", "tls_client_ca", "trusted_proxies"}),
}


def configuration_hash(settings: Settings) -> str:
    """The hash: equal on machines whose calls, prices and limits are the same."""
    sections = {name: _shared(name, getattr(settings, name)) for name in SECTIONS if name not in OWN_SECTIONS}
    sections["patterns"] = settings.patterns
    raw = msgspec.json.encode(sections, enc_hook=_plain, order="sorted")
    return sha256(raw).hexdigest()[:LENGTH]


def _shared(section: str, value: Any) -> Any:
    own = OWN_KEYS.get(section)
    if own is None:
        return value
    names = [name for name in value.__struct_fields__ if name not in own]
    return {name: _shared(f"{section}.{name}", getattr(value, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reference
    return str(value)
