"""Which headers of callers a provider's `forward_headers` may name, and which of them any provider names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config.provider_settings import ProviderSettings
from gateway.config.secret_headers import is_credential_header

#: They belong to one connection or one body, name the client to a proxy, or have a meaning for the gateway itself.
_RESERVED = re.compile(
    r"accept(-.*)?|connection|content-.*|date|expect|forwarded|host|idempotency-key|keep-alive|origin|range|referer|te|"
    r"trailers?|transfer-encoding|upgrade(-.*)?|user-agent|via|proxy-.*|sec-.*|x-forwarded-.*|x-real-ip|x-gateway-.*|"
    r"traceparent|tracestate|openai-.*|anthropic-.*",
    re.IGNORECASE,
)


def refusal(name: str) -> str:
    """Why a header is never forwarded by its name alone; empty for one that may be."""
    if is_credential_header(name):
        return f"{name} carries a credential of the caller, which no upstream gets"
    if _RESERVED.fullmatch(name):
        return f"{name} is the gateway's own, or is forwarded already where it belongs"
    return ""


def forwarded_names(providers: Mapping[str, ProviderSettings]) -> tuple[str, ...]:
    """The headers that any provider forwards, in lower case, sorted."""
    return tuple(sorted({name.lower() for provider in providers.values() for name in provider.forward_headers}))
