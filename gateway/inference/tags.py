"""Tags of calls: labels that callers give, by which an account's use is reported.

Only names in `server.tags` count. The header `x-gateway-tags: team=search,env=prod` is the gateway's own, so a mistake
in it is refused. `metadata` of a chat request is OpenAI's field and may hold anything: what is no tag is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gateway.errors import InvalidValue

HEADER = "x-gateway-tags"
MOST = 4  # tags of one call
VALUE = re.compile(r"[A-Za-z0-9._:/+-]{1,64}", re.ASCII)


def read_tags(
    names: Collection[str], header: str | None, metadata: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    """The tags of a call, None for none; a tag of the header goes before one of the metadata.

    InvalidValue for a header with another form, an unknown name, or more than `MOST` tags.
    """
    tags = _read_header(names, header) if header is not None else {}
    if metadata:
        for name in names:
            value = metadata.get(name)
            if value is not None and name not in tags and len(tags) < MOST and VALUE.fullmatch(value):
                tags[name] = value
    return tags or None


def _read_header(names: Collection[str], header: str) -> dict[str, str]:
    tags: dict[str, str] = {}
    parts = [part.strip() for part in header.split(",", MOST + 1) if part.strip()]
    if len(parts) > MOST:
        raise InvalidValue(f"{HEADER} has more than {MOST} tags", param=HEADER)
    for part in parts:
        name, _, value = part.partition("=")
        if name not in names:
            raise InvalidValue(f"{HEADER} has an unknown tag; known: {', '.join(names)}", param=HEADER)
        if name in tags:
            raise InvalidValue(f"{HEADER} has the tag {name} twice", param=HEADER)
        if not VALUE.fullmatch(value):
            raise InvalidValue(
                f"The value of {name} in {HEADER} is not 1 to 64 of A-Z a-z 0-9 . _ : / + -", param=HEADER
            )
        tags[name] = value
    return tags
