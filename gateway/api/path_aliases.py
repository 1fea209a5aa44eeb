"""Other paths of the endpoints under `/v1`: those of Azure's clients, and those of a base URL without `/v1`.

`plain_path(path, is_route)` gives the path under `/v1` and the model that the path names, as Azure's deployments do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Raw, structs

from gateway.schemas.duplicate_keys import Examined
from gateway.uploads.form import Form

AZURE, DEPLOYMENTS = "/openai/", "/openai/deployments/"
#: What follows a deployment in Azure's paths.
OPERATIONS = (
    "/chat/completions", "/embeddings", "/images/generations", "/images/edits", "/audio/speech",
    "/audio/transcriptions",
)  # fmt: skip

_table = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


def plain_path(path: str, is_route: Callable[[str], bool]) -> tuple[str, str]:
    """The path under `/v1`, and the model in the path or ""; any other path as it is."""
    if path.startswith(DEPLOYMENTS):
        rest = path[len(DEPLOYMENTS) :].rstrip("/")
        for operation in OPERATIONS:
            if rest.endswith(operation) and (model := rest.removesuffix(operation)):
                return "/v1" + operation, unquote(model)
    if path.startswith(AZURE):
        return "/v1/" + path[len(AZURE) :].removeprefix("v1/"), ""
    under = "/v1" + path
    return (under, "") if path != "/" and is_route(under) else (path, "")


def body_with_model(body: bytes | Examined, model: str) -> bytes | Examined:
    """The body with another `model`; one that is no JSON object stays as it is, and its decoder names the error."""
    content = body if isinstance(body, bytes) else body.content
    try:
        fields: dict[str, Any] = {**_table.decode(content), "model": model}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    written = _encode(fields)
    return written if isinstance(body, bytes) else Examined(written, body.names | {"model"}, None)


def form_with_model(form: Form, model: str) -> Form:
    """The same for a form."""
    texts = [(name, text) for name, text in form.texts if name != "model"]
    return structs.replace(form, texts=[*texts, ("model", model)])
