"""The address of a provider's server, from its options."""

from __future__ import annotations

from urllib.parse import urlsplit


def checked_base_url(base_url: str, *, option: str = "base_url") -> tuple[str, str]:
    """The address without a final slash, and its host and port, which no error may show; ValueError if invalid."""
    address = urlsplit(base_url)
    if address.scheme not in {"http", "https"} or not address.hostname or address.username is not None:
        raise ValueError(f"{option} must be an http or https address without credentials")
    return base_url.rstrip("/"), address.netloc
