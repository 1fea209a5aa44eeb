"""Classes for answers of Anthropic's API that its package reads in another way, or of which it has none."""

from __future__ import annotations

from typing import Literal

from anthropic import BaseModel
from anthropic.types import ErrorResponse, ModelInfo
from anthropic.types.shared.error_type import ErrorType


class ModelPage(BaseModel):
    """The models, and the ids of the first and the last one; the package reads any page."""

    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None


class Ping(BaseModel):
    """An event that keeps a stream open."""

    type: Literal["ping"]


class ErrorDetails(BaseModel):
    """The reason of an error; the package lists the reasons of Anthropic."""

    error_code: str | None
    param: str | None = None


class Error(BaseModel):
    """An error. Anthropic's API sends `details`, its document has the type of status 413; the package has neither."""

    type: ErrorType | Literal["request_too_large"]
    message: str
    details: ErrorDetails | None = None


class ErrorAnswer(ErrorResponse):
    """A whole answer with an error, or the event that ends a stream."""

    error: Error  # type: ignore[assignment]
    request_id: str
