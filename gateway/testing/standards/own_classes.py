"""Classes for answers of OpenAI's API that its package reads in another way, or of which it has none.

Imported when one of them is first asked for: the package loads in a third of a second.
"""

from __future__ import annotations

from typing import Literal

from openai import BaseModel
from openai.types import Completion, CompletionChoice, CreateEmbeddingResponse, Embedding, Model
from openai.types.audio import TranslationVerbose
from openai.types.shared import ErrorObject


class EitherForm(Embedding):
    """A vector of numbers, or their base64 if the request asked for it."""

    embedding: list[float] | str  # type: ignore[assignment]


class EitherForms(CreateEmbeddingResponse):
    """The answer with these."""

    data: list[EitherForm]  # type: ignore[assignment]


class StartedChoice(CompletionChoice):
    """A choice in a stream of completions; the package lets only the last one be read."""

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionChunk(Completion):
    """A chunk of a stream of completions. With the usage asked for, all but the last have a null in its place."""

    choices: list[StartedChoice]  # type: ignore[assignment]


class WholeTranslation(TranslationVerbose):
    """A translation with its times; the package leaves the task out."""

    task: Literal["translate"]


class ModelList(BaseModel):
    """A list of models; the package reads any page."""

    object: Literal["list"]
    data: list[Model]


class SpeechUsage(BaseModel):
    """The tokens of spoken text."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class SpeechDelta(BaseModel):
    """A piece of audio, in base64."""

    type: Literal["speech.audio.delta"]
    audio: str


class SpeechDone(BaseModel):
    """The end of the audio."""

    type: Literal["speech.audio.done"]
    usage: SpeechUsage


class Error(ErrorObject):
    """An error; the package lets both of these be missing, OpenAI's document does not."""

    code: str | None
    param: str | None


class ErrorAnswer(BaseModel):
    """A whole answer with an error, or one in a stream whose events have no names."""

    error: Error


class ErrorEvent(BaseModel):
    """The event that ends a stream of images."""

    type: Literal["error"]
    error: Error
