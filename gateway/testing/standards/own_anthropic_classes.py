"""The class of a list of Anthropic's models; the package reads any page."""

from __future__ import annotations

from anthropic import BaseModel
from anthropic.types import ModelInfo


class ModelPage(BaseModel):
    """The models, and the ids of the first and the last one."""

    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None
