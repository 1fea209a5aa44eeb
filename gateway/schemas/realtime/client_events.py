"""The events of a client: which ones are passed on, what they add to the conversation, and the name of the model.

`read_client_event` reads what costs money or names a model, and nothing else; an event is passed on as the bytes that
arrived, except a `session.update` that names the model. Sharp edge: an event that is not in `EVENTS` is refused,
because it is unknown what it costs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.errors import (
    BadRequest,
    InvalidJSON,
    InvalidValue,
    MissingParameter,
    UnsupportedParameter,
    UnsupportedValue,
)
from gateway.schemas.forbidden import strip_forbidden

APPEND: Final = "input_audio_buffer.append"
CREATE: Final = "response.create"
UPDATE: Final = "session.update"
ITEM: Final = "conversation.item.create"
#: The events of a client that are passed on.
EVENTS: Final = frozenset(
    {
        UPDATE,
        APPEND,
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "output_audio_buffer.clear",
        ITEM,
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
        CREATE,
        "response.cancel",
    }
)
MAX_EVENT_ID: Final = 512  # characters


NOTHING: Final = Raw(b"")  # a value that is absent; msgspec reads no union of Raw and None
ABSENT: Final = (b"", b"null")


class ClientEvent(Struct):
    """An event to pass on, and what it adds to the next prompt."""

    type: str
    body: bytes
    text: int = 0  # bytes that may be text of the prompt
    audio: int = 0  # bytes of audio
    images: int = 0


class _Opening(Struct):
    type: Any = None
    event_id: Any = None
    audio: Raw = NOTHING


class _Part(Struct):
    audio: Raw = NOTHING
    image_url: Raw = NOTHING


class _Item(Struct):
    content: list[_Part] | None = None


class _ItemEvent(Struct):
    item: _Item | None = None


class _Options(Struct):
    """What a session and a response may say that the gateway looks at."""

    tools: list[Any] | None = None
    prompt: Any = None
    input: list[_Item] | None = None


class _ResponseEvent(Struct):
    response: _Options | None = None


class _SessionEvent(Struct):
    session: _Options | None = None


_opening = msgspec.json.Decoder(_Opening)
_item_event = msgspec.json.Decoder(_ItemEvent)
_response_event = msgspec.json.Decoder(_ResponseEvent)
_session_event = msgspec.json.Decoder(_SessionEvent)
_table = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode
#: How msgspec says that a text is no JSON, or too deep, or no Unicode. A wrong type in JSON is a ValidationError.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def event_id_of(text: bytes) -> str | None:
    """The client's own id of an event, for the error that answers it."""
    try:
        found = _opening.decode(text).event_id
    except (*UNREADABLE, msgspec.ValidationError):
        return None
    return found if isinstance(found, str) and len(found) <= MAX_EVENT_ID else None


def read_client_event(text: bytes, *, names: tuple[str, ...], upstream: str) -> ClientEvent:
    """The event; a BadRequest says what is wrong with it.

    `names` are the public names of the session's model, in place of which the upstream gets `upstream`.
    """
    try:
        opening = _opening.decode(text)
        kind = opening.type
        if kind == APPEND:  # most events
            return ClientEvent(APPEND, text, audio=_base64_bytes(opening.audio))
        if not isinstance(kind, str):
            raise MissingParameter("An event has a 'type', a string.", param="type")
        if kind not in EVENTS:
            raise UnsupportedValue(f"Unsupported value: 'type'. '{kind[:100]}' is not taken here.", param="type")
        if kind == ITEM:
            return _of_item(text)
        if kind == CREATE:
            return _of_response(text)
        if kind == UPDATE:
            return _of_session(text, names, upstream)
        return ClientEvent(kind, text)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The event is not valid: {error}", code="invalid_event") from None
    except UNREADABLE:
        raise InvalidJSON("The message is not a JSON object") from None


def _of_item(text: bytes) -> ClientEvent:
    item = _item_event.decode(text).item
    return _counted(ITEM, text, () if item is None else (item,))


def _of_response(text: bytes) -> ClientEvent:
    response = _response_event.decode(text).response
    if response is None:
        return ClientEvent(CREATE, text)
    _check_options(response, "response", _table.decode(_table.decode(text)["response"]))
    return _counted(CREATE, text, response.input or ())


def _of_session(text: bytes, names: tuple[str, ...], upstream: str) -> ClientEvent:
    session = _session_event.decode(text).session
    if session is None:
        return ClientEvent(UPDATE, text)
    size, event = len(text), _table.decode(text)
    fields = _table.decode(event["session"])
    _check_options(session, "session", fields)
    model = fields.get("model")
    if model is not None and bytes(model) != b"null":
        try:
            name = _text.decode(model)
        except msgspec.ValidationError:
            name = ""
        if name not in names:
            raise InvalidValue("The model of a session cannot be changed.", param="session.model")
        fields["model"] = Raw(_encode(upstream))
        event["session"] = Raw(_encode(fields))
        text = _encode(event)
    return ClientEvent(UPDATE, text, text=size)


def _check_options(options: _Options, param: str, fields: dict[str, Raw]) -> None:
    """Refuse what the upstream would run or read for the client beyond the conversation; `fields` are all options."""
    forbidden = strip_forbidden(dict(fields), fields)
    if forbidden:
        name = f"{param}.{forbidden[0]}"
        raise UnsupportedParameter(f"'{name}' is not taken here.", param=name)
    if options.prompt is not None:
        # It names what is stored in the account of the operator.
        raise UnsupportedParameter(
            f"'{param}.prompt' is not taken here; send the instructions.", param=f"{param}.prompt"
        )
    for tool in options.tools or ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind != "function":
            raise UnsupportedValue("Only tools of the type 'function' are taken here.", param=f"{param}.tools")


def _counted(kind: str, text: bytes, items: Any) -> ClientEvent:
    audio = images = media = 0
    for item in items:
        for part in item.content or ():
            sound, image = bytes(part.audio), bytes(part.image_url)
            audio += _base64_bytes(part.audio)
            images += image not in ABSENT
            media += len(sound) + len(image)
    return ClientEvent(kind, text, len(text) - media, audio, images)


def _base64_bytes(raw: Raw) -> int:
    """How many bytes a JSON string in base64 stands for; 0 if it is absent."""
    return max(0, len(bytes(raw)) - 2) * 3 // 4
