"""Names of tools in namespaces, for models that know functions only.

`namespace__name`; a name that is too long, has other characters or is another tool's ends in a hash of both. The same
namespace and name give the same result in every turn, because calls of earlier turns have it, and prompt caches.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 64
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_HASH = 8  # hexadecimal digits


def flat_name(namespace: str, name: str, *, hashed: bool = False) -> str:
    """The name of a tool in a namespace; `hashed`: without the hash, it would be that of another tool."""
    plain = f"{namespace}__{name}"
    safe = _OTHER.sub("_", plain)
    if safe == plain and len(plain) <= LONGEST and not hashed:
        return plain
    digest = hashlib.blake2s(f"{namespace}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{safe[: LONGEST - _HASH - 1]}_{digest}"
