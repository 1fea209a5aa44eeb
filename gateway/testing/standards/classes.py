"""The classes of the standards, imported when they are first asked for: a process pays only for what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from msgspec import Struct

Document = Mapping[str, Any]
OWN = "gateway.testing.standards.own_classes"
OWN_ANTHROPIC = "gateway.testing.standards.own_anthropic_classes"
OWN_GOOGLE = "gateway.testing.standards.own_google_classes"
#: The dialect of errors, whole answers and events without a class of their own, that goes with a dialect of answers.
OPENAI_ERRORS, ANTHROPIC_ERRORS, GOOGLE_ERRORS = "OpenAI errors", "Anthropic errors", "Google errors"


class Missing(Exception):
    """The package with the classes of a standard is not installed; the message says how to install it."""


class Kinds(Struct, frozen=True):
    """The classes of one endpoint, each as `MODULE:NAME`, by the document; "" for one without a class."""

    whole: Callable[[Document], str]
    event: Callable[[str], str]


def class_of_whole(dialect: str, document: Document) -> Any:
    """The class of a whole answer; None if the standard says nothing about it."""
    return _loaded(KINDS[dialect].whole(document))


def class_of_event(dialect: str, name: str) -> Any:
    """The class of an event of a stream; None for one of which the standard says nothing."""
    if dialect == "responses":
        return _response_events().get(name)
    return _loaded(KINDS[dialect].event(name))


def class_of_socket_error() -> Any:
    """The class of an error that a WebSocket sends instead of a response."""
    return _loaded("openresponses_types.types:WebSocketErrorEvent")


@cache
def _loaded(place: str) -> Any:
    if not place:
        return None
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise Missing(
            f"The package of {error.name} is missing: pip install 'model-gateway[conformance]' installs the classes "
            "of all standards"
        ) from None


@cache
def _response_events() -> Mapping[str, Any]:
    kinds = vars(_module("openresponses_types.types")).values()
    named = {}
    for kind in kinds:
        field = getattr(kind, "model_fields", {}).get("type")
        if field is not None and kind.__name__.endswith("StreamingEvent"):
            [value] = field.annotation
            named[str(value)] = kind
    return named


def _module(name: str) -> Any:
    _loaded(f"{name}:BaseModel")  # says which package is missing
    return import_module(name)


def _always(place: str) -> Callable[[Any], str]:
    return lambda _: place


def _message_event(name: str) -> str:
    own = {"ping": "Ping", "error": "ErrorAnswer"}.get(name)
    return "anthropic.types:RawMessageStreamEvent" if own is None else f"{OWN_ANTHROPIC}:{own}"


def _image_event(place: str) -> Callable[[str], str]:
    return lambda name: f"{OWN}:ErrorEvent" if name == "error" else place


def _transcript(document: Document) -> str:
    """Three forms, of which the request chooses one."""
    if "duration" not in document:
        return "openai.types.audio:Transcription"
    segments = document.get("segments") or [{}]
    is_diarized = "speaker" in segments[0] or ("segments" in document and "language" not in document)
    return f"openai.types.audio:Transcription{'Diarized' if is_diarized else 'Verbose'}"


def _translation(document: Document) -> str:
    """Two forms, of which the request chooses one."""
    return f"{OWN}:WholeTranslation" if "duration" in document else "openai.types.audio:Translation"


def _models(document: Document) -> str:
    """Anthropic's clients get a list of their own; so do Google's."""
    if "models" in document and "data" not in document:
        return f"{OWN_GOOGLE}:ModelPage"
    return f"{OWN_ANTHROPIC}:ModelPage" if "has_more" in document else f"{OWN}:ModelList"


def _model(document: Document) -> str:
    if document.get("type") == "model":
        return "anthropic.types:ModelInfo"
    return f"{OWN_GOOGLE}:Model" if "supportedGenerationMethods" in document else "openai.types:Model"


def _model_error(document: Document) -> str:
    """In the form of the client's API, as the models are."""
    if document.get("type") == "error":
        return f"{OWN_ANTHROPIC}:ErrorAnswer"
    error = document.get("error")
    is_googles = isinstance(error, dict) and "status" in error
    return f"{OWN_GOOGLE if is_googles else OWN}:ErrorAnswer"


NONE = _always("")
_IMAGES = _always("openai.types:ImagesResponse")
KINDS: Mapping[str, Kinds] = {
    "responses": Kinds(_always("openresponses_types.types:ResponseResource"), NONE),
    "compactions": Kinds(_always("openresponses_types.types:CompactResource"), NONE),
    "chat": Kinds(_always("openai.types.chat:ChatCompletion"), _always("openai.types.chat:ChatCompletionChunk")),
    "completions": Kinds(_always("openai.types:Completion"), _always(f"{OWN}:CompletionChunk")),
    "messages": Kinds(_always("anthropic.types:Message"), _message_event),
    "gemini": Kinds(*[_always("google.genai.types:GenerateContentResponse")] * 2),
    "embeddings": Kinds(_always(f"{OWN}:EitherForms"), NONE),
    "images": Kinds(_IMAGES, _image_event("openai.types:ImageGenStreamEvent")),
    "edits": Kinds(_IMAGES, _image_event("openai.types:ImageEditStreamEvent")),
    "moderations": Kinds(_always("openai.types:ModerationCreateResponse"), NONE),
    "speech": Kinds(NONE, lambda name: f"{OWN}:Speech{name.removeprefix('speech.audio.').capitalize()}"),
    "transcriptions": Kinds(_transcript, _always("openai.types.audio:TranscriptionStreamEvent")),
    "translations": Kinds(_translation, NONE),
    "models": Kinds(_models, NONE),
    "model": Kinds(_model, NONE),
    "response tokens": Kinds(_always("openai.types.responses:InputTokenCountResponse"), NONE),
    "message tokens": Kinds(_always("anthropic.types:MessageTokensCount"), NONE),
    "gemini tokens": Kinds(_always(f"{OWN_GOOGLE}:CountedTokens"), NONE),
    "gemini vector": Kinds(_always(f"{OWN_GOOGLE}:OneVector"), NONE),
    "gemini vectors": Kinds(_always(f"{OWN_GOOGLE}:Vectors"), NONE),
    OPENAI_ERRORS: Kinds(_always(f"{OWN}:ErrorAnswer"), NONE),
    ANTHROPIC_ERRORS: Kinds(_always(f"{OWN_ANTHROPIC}:ErrorAnswer"), NONE),
    GOOGLE_ERRORS: Kinds(_always(f"{OWN_GOOGLE}:ErrorAnswer"), NONE),
    "errors of models": Kinds(_model_error, NONE),
}


def all_classes() -> dict[str, Any]:
    """Every class by which answers are read, by its place; unions among them."""
    lists = {name: [{}, *_SAMPLES.get(name, ())] for name in KINDS}
    places = {KINDS[name].whole(document) for name, documents in lists.items() for document in documents}
    names = ("speech.audio.delta", "speech.audio.done")
    places |= {kinds.event(name) for kinds in KINDS.values() for name in names}
    places |= {_message_event("ping"), _image_event("")("error")}
    found = {place: _loaded(place) for place in sorted(places - {""})}
    return {**found, **_response_events(), "error of a WebSocket": class_of_socket_error()}


#: Documents of other forms of an answer.
_SAMPLES: Mapping[str, tuple[Document, ...]] = {
    "transcriptions": ({"duration": 1, "language": "en"}, {"duration": 1, "segments": [{"speaker": "A"}]}),
    "translations": ({"duration": 1},),
    "models": ({"has_more": False}, {"models": []}),
    "model": ({"type": "model"}, {"supportedGenerationMethods": []}),
}
