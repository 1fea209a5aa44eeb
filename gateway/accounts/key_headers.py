"""Where a request carries its key: in `Authorization`, in a header that another API uses for it, in the query, or in a
subprotocol.

The first one that is there counts, also if it has no possible key.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_plus

from gateway.accounts.authenticator import bearer

#: Headers that carry a key and nothing else, in the spelling of the parser: Anthropic's, Google's and Azure's.
KEY_HEADERS = tuple(name.title() for name in ("x-api-key", "x-goog-api-key", "api-key"))
#: Paths under which Google's clients send the key in the query.
QUERY_PATHS = ("/v1beta/", "/v1/models")
#: How a browser offers its key with the handshake of `/v1/realtime`, as a subprotocol.
KEY_PROTOCOL = "openai-insecure-api-key."
MAX_PROTOCOLS = 2048  # characters of the list that are read


def key_headers(headers: Mapping[str, str], target: str = "") -> tuple[str | None, str | None]:
    """The arguments of `bearer`: `Authorization`, or what carries a key in place of it.

    `target` is the path with its query. Anthropic's own API prefers `x-api-key` to `Authorization`, so it counts first
    in a request to that API if it has the form of a key.
    """
    get = headers.get
    authorization = get("Authorization")
    if authorization is not None:
        own = get(KEY_HEADERS[0])
        is_anthropic = own is not None and ("/messages" in target or get("Anthropic-Version") is not None)
        return (None, own) if is_anthropic and bearer(None, own) is not None else (authorization, None)
    for name in KEY_HEADERS:
        if (value := get(name)) is not None:
            return None, value
    if "/realtime" in target:
        return None, _in_subprotocol(get("Sec-Websocket-Protocol") or "")
    return None, _in_query(target) if "?" in target else None


def _in_subprotocol(offered: str) -> str | None:
    names = (name.strip() for name in offered[:MAX_PROTOCOLS].split(","))
    return next((name[len(KEY_PROTOCOL) :] for name in names if name.startswith(KEY_PROTOCOL)), None)


def _in_query(target: str) -> str | None:
    path, _, query = target.partition("?")
    if not path.startswith(QUERY_PATHS):
        return None
    found = (field[4:] for field in query.split("&") if field.startswith("key="))
    value = next(found, None)
    return None if value is None else unquote_plus(value)
