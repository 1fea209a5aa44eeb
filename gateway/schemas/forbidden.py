"""Names that a request body may never carry to an upstream: addresses, credentials, and the choice of another model.

An upstream may itself be a proxy that reads such names, so they are removed at any depth of whatever is forwarded
unread; each is somebody's CVE. `header_name` writes a caller's field name so that it may stand in a response header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from gateway.errors import InvalidJSON
from gateway.schemas.schema_errors import invalid

#: Lower case, words joined by underscores; other spellings are brought to this form before they are compared.
FORBIDDEN_FIELDS = frozenset(
    {
        # where to
        "api_base", "api_base_url", "api_endpoint", "api_host", "api_type", "api_url", "api_version",
        "azure_deployment", "azure_endpoint", "base_url", "endpoint_url", "host", "proxies", "proxy", "proxy_url",
        "region_name", "aws_bedrock_runtime_endpoint", "aws_region", "aws_region_name", "aws_sts_endpoint",
        "vertex_ai_location", "vertex_ai_project", "vertex_location", "vertex_project", "http_client", "ssl_verify",
        "verify_ssl",
        # as whom
        "access_key", "access_token", "api_key", "api_keys", "api_token", "auth", "auth_token", "authorization",
        "aws_access_key_id", "aws_profile_name", "aws_role_name", "aws_secret_access_key", "aws_session_name",
        "aws_session_token", "aws_web_identity_token", "azure_ad_token", "azure_ad_token_provider", "azure_password",
        "azure_username", "bearer_token", "client_secret", "credential", "credentials", "openai_api_key",
        "organization", "organization_id", "password", "secret_key", "tenant_id", "vertex_ai_credentials",
        "vertex_credentials", "x_api_key",
        # with what else in the HTTP request
        "default_headers", "default_query", "extra_body", "extra_headers", "extra_query", "headers", "http_headers",
        # by which other model or code
        "callbacks", "content_policy_fallbacks", "context_window_fallbacks", "custom_llm_provider", "failure_callback",
        "fallbacks", "litellm_params", "model_list", "models", "router_settings", "success_callback", "user_config",
    }
)  # fmt: skip

_CONTAINERS = frozenset({dict, list})
_ODD = re.compile(r"[^A-Za-z0-9_.\-\[\]]")


def header_name(name: str) -> str:
    """A caller's field name with every odd character as `?`, at most 64 long."""
    return _ODD.sub("?", name[:64])


def is_forbidden(name: str) -> bool:
    """Whether a name is on the list, in any spelling."""
    return name.lower().replace("-", "_") in FORBIDDEN_FIELDS


def strip_forbidden(fields: dict[str, Raw], names: Iterable[str]) -> list[str]:
    """Remove forbidden names from the named fields, at any depth; returns what was removed, fit for a header."""
    removed: list[str] = []
    for name in names:
        if is_forbidden(name):
            del fields[name]
            removed.append(header_name(name))
            continue
        if b"{" not in bytes(fields[name]):
            continue  # no object, no names
        document = _decode(fields[name], name)
        inner = _strip(document)
        if inner:
            fields[name] = Raw(msgspec.json.encode(document))
            removed += [header_name(f"{name}.{key}") for key in inner]
    return removed


def _decode(raw: Raw, name: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise InvalidJSON("The request body is nested too deeply.") from None
    except msgspec.ValidationError:  # what passed as Raw can only fail by a number beyond all types
        shown = header_name(name)
        raise invalid(shown, "a number in it is out of range") from None


def _strip(document: Any) -> list[str]:
    """Delete forbidden keys in place; a stack, for the document may be deep. 1 µs an object."""
    removed: list[str] = []
    pending = [document] if type(document) in _CONTAINERS else []
    while pending:
        node = pending.pop()
        if type(node) is dict:
            hits = [key for key in node if is_forbidden(key)]
            for key in hits:
                del node[key]
            removed += hits
            node = list(node.values())
        pending += [item for item in node if type(item) in _CONTAINERS]
    return removed
