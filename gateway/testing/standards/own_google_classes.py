"""Classes for answers of Google's Gemini API that its package rewrites before it reads them, or of which it has none.

The members are those of the API's document, and the ones that it always has are required. The package's classes are
those of its callers: all of their members are optional.
"""

from __future__ import annotations

from typing import Literal

from google.genai import types
from google.genai._common import BaseModel
from pydantic import Field

#: The names of google.rpc.Code.
StatusName = Literal[
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
]


class Model(types.Model):
    """A model; the package calls its methods actions."""

    name: str
    version: str
    supported_generation_methods: list[str]


class ModelPage(types.ListModelsResponse):
    """A list of models."""

    models: list[Model]  # type: ignore[assignment]


class CountedTokens(types.CountTokensResponse):
    """The tokens of a request; the package leaves out those of each modality."""

    total_tokens: int
    prompt_tokens_details: list[types.ModalityTokenCount] | None = None
    cache_tokens_details: list[types.ModalityTokenCount] | None = None


class Vector(types.ContentEmbedding):
    """A vector."""

    values: list[float]


class OneVector(BaseModel):
    """The vector of one content; the package asks for several."""

    embedding: Vector
    usage_metadata: types.UsageMetadata | None = None


class Vectors(types.EmbedContentResponse):
    """The vectors of several contents."""

    embeddings: list[Vector]  # type: ignore[assignment]


class ErrorInfo(BaseModel):
    """The reason of an error, google.rpc.ErrorInfo."""

    kind: Literal["type.googleapis.com/google.rpc.ErrorInfo"] = Field(alias="@type")
    reason: str
    domain: str
    metadata: dict[str, str]


class RetryInfo(BaseModel):
    """When to try again, google.rpc.RetryInfo."""

    kind: Literal["type.googleapis.com/google.rpc.RetryInfo"] = Field(alias="@type")
    retry_delay: str = Field(pattern=r"^\d+(\.\d+)?s\z")


class Error(types.GoogleRpcStatus):
    """An error; `code` is an HTTP status, and `status` the name of a code of google.rpc."""

    code: int
    message: str
    status: StatusName
    details: list[ErrorInfo | RetryInfo] | None = None  # type: ignore[assignment]


class ErrorAnswer(BaseModel):
    """A whole answer with an error, or an event with one."""

    error: Error
