"""The option `headers` of a provider: its values are texts, or references to secrets as `env:NAME` or `file:PATH`.

A literal value is refused under a name that carries a credential, as a literal `api_key` is: configurations end up in
repositories. Any other header may have a literal value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from gateway.config.secret import Secret, SecretError
from gateway.config.toml_reader import FromTables, Key, TomlReader

_CREDENTIAL = re.compile(
    r"(.*[-_])?(authorization|cookie|api-?key|key|token|secret|password|credentials?)", re.IGNORECASE
)


def is_credential_header(name: str) -> bool:
    """Whether a header of this name carries a credential, as far as the name tells."""
    return _CREDENTIAL.fullmatch(name) is not None


def reveal_headers(headers: Mapping[str, Secret | str]) -> dict[str, str]:
    """The headers as they are sent; SecretError names the reference that leads nowhere."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in headers.items()}


def _read(reader: TomlReader, value: object, key: Key) -> dict[str, Secret | str] | None:
    if not isinstance(value, dict):
        reader.problem(key, "expected a table of header names and values")
        return None
    found = {name: _read_one(reader, name, text, (*key, name)) for name, text in value.items()}
    return {name: text for name, text in found.items() if text is not None}


def _read_one(reader: TomlReader, name: str, value: Any, key: Key) -> Secret | str | None:
    if not isinstance(value, str):
        reader.problem(key, "expected a string")
        return None
    if not value.startswith(("env:", "file:")):
        if is_credential_header(name) and not reader.literals:
            reader.problem(key, "a header with a credential is given as env:NAME or file:PATH, not as a literal")
        return value
    try:
        return Secret.parse(value, folder=reader.folder)
    except SecretError as error:
        reader.problem(key, str(error))
        return None


#: `Any` is `Secret | str`, which `msgspec.convert` refuses.
SecretHeaders = Annotated[
    dict[str, Any],
    FromTables(_read, lambda _: {"type": "object", "additionalProperties": {"type": "string"}}, is_reference=True),
]
