"""XSRF tokens: each form has one, which no other site can know.

It is an HMAC of the session's token, or of a random cookie before the sign-in. So a token of one person does not work
for another, and one of before the sign-in does not work after it.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

FIELD = "xsrf"
HEADER = "X-Xsrf-Token"


def xsrf_token(anchor: str) -> str:
    """The token that belongs to a cookie's value."""
    return urlsafe_b64encode(hmac.digest(anchor.encode(), b"xsrf", "sha256")).decode().rstrip("=")


def is_right(anchor: str, token: str) -> bool:
    """Whether the token belongs to the cookie's value; never without a cookie."""
    return bool(anchor) and hmac.compare_digest(xsrf_token(anchor).encode(), token.encode())
