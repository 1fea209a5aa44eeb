"""Names that a request body may never carry to an upstream: addresses, credentials, and the choice of another model.

An upstream may itself be a proxy that reads such names, so they are removed at any depth of whatever is forwarded
unread; each is somebody's CVE. They are compared without case, `_` and `-`. In JSON Schemas, in arguments and inputs of
tools and in metadata, such a name is a word of the caller's own, so nothing is searched or removed there. `header_name`
writes a caller's field name so that it may stand in a response header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from gateway.errors import InvalidJSON, InvalidValue
from gateway.schemas.schema_errors import invalid

#: Lower case, words joined by underscores.
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

#: Keys whose values are the caller's own words: JSON Schemas, arguments and inputs of tools, metadata.
UNSEARCHED_FIELDS = frozenset(
    {
        "args", "arguments", "function_args", "guided_json", "input", "input_schema", "json_schema", "metadata",
        "parameters", "schema", "tool_input",
    }
)  # fmt: skip
MOST_SEARCHED = 30_000  # objects and arrays in one field; a search takes 1 µs for each
DENSE_BELOW = 1 << 20  # bytes; the values of a larger body were counted before

_FORBIDDEN = frozenset(name.replace("_", "") for name in FORBIDDEN_FIELDS)
_CONTAINERS = frozenset({dict, list})
_ODD = re.compile(r"[^A-Za-z0-9_.\-\[\]]")


def header_name(name: str) -> str:
    """A caller's field name with every odd character as `?`, at most 64 long."""
    return _ODD.sub("?", name[:64])


def is_forbidden(name: str) -> bool:
    """Whether a name is on the list, in any spelling."""
    return name.lower().replace("_", "").replace("-", "") in _FORBIDDEN


def strip_forbidden(fields: dict[str, Raw], names: Iterable[str]) -> list[str]:
    """Remove forbidden names from the named fields, at any depth; returns what was removed, fit for a header."""
    removed: list[str] = []
    for name in names:
        if is_forbidden(name):
            del fields[name]
            removed.append(header_name(name))
            continue
        text = bytes(fields[name])
        if name in UNSEARCHED_FIELDS or b":" not in text:
            continue  # no object with a key, no names
        if len(text) < DENSE_BELOW and _brackets(text) > MOST_SEARCHED and _brackets(_outside(text)) > MOST_SEARCHED:
            raise _too_dense(name)
        document = _decode(fields[name], name)
        inner = _strip(document, name)
        if inner:
            fields[name] = Raw(msgspec.json.encode(document))
            removed += [header_name(f"{name}.{key}") for key in inner]
    return removed


def _brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _outside(text: bytes) -> bytes:
    """Valid JSON text without its strings."""
    return b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _decode(raw: Raw, name: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise InvalidJSON("The request body is nested too deeply.") from None
    except msgspec.ValidationError:  # what passed as Raw can only fail by a number beyond all types
        shown = header_name(name)
        raise invalid(shown, "a number in it is out of range") from None


def _strip(document: Any, name: str) -> list[str]:
    """Delete forbidden keys in place; a stack, for the document may be deep. 1 µs an object."""
    removed: list[str] = []
    pending = [document] if type(document) in _CONTAINERS else []
    searched = 0
    while pending:
        node = pending.pop()
        searched += 1
        if type(node) is dict:
            hits = [key for key in node if is_forbidden(key)]
            for key in hits:
                del node[key]
            removed += hits
            node = [value for key, value in node.items() if key not in UNSEARCHED_FIELDS]
        pending += [item for item in node if type(item) in _CONTAINERS]
        if searched + len(pending) > MOST_SEARCHED:
            raise _too_dense(name)
    return removed


def _too_dense(name: str) -> InvalidValue:
    return invalid(header_name(name), f"it has more than {MOST_SEARCHED} objects and arrays")
