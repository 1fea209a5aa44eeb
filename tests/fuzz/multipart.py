"""Forms: the same form, or the same refusal, wherever the body is cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from gateway.errors import GatewayError
from gateway.uploads.form import MAX_PARTS, MAX_TEXT, Form, FormReader
from gateway.uploads.spool import Spool
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import Damage, cuts_of, damaged, damages_of, pieces

BOUNDARIES = ("b", "--", "-" * 68 + "b", "a b", "'()+_,-./:=?", "b" * 70, "b" * 71, "", "\xe4", '"q"')
NAMES = ("model", "file", "prompt", "timestamp_granularities[]", "", "\xe4", "a\\b", 'a"b', "x" * 300)
LARGE = (b"x" * MAX_TEXT, b"y" * (MAX_TEXT + 1), b"\r\n--" * 16_000, b"\r\n" * 40_000)
VALUES = (b"", b"whisper-1", b"\xff", b"\r\n", b"\r\n--", b"\r\n--b", b"--b--\r\n", b"\r\n--b-", b"\r\n-")
EXTRA = (
    b"", b"", b"", b"Content-Type: audio/wav\r\n", b"Content-Transfer-Encoding: base64\r\n", b"X: \x01\r\n",
    b"broken\r\n",
    b"Content-Disposition: form-data; name=again\r\n", b"Content-Transfer-Encoding: 8bit\r\n",
)  # fmt: skip
FORMATS = (
    'form-data; name="{}"', "form-data; name={}", 'form-data; name="{}"; filename="a.wav"', "attachment", "form-data",
    "form-data; name*=utf-8''{}",
)  # fmt: skip
PLAIN_NAMES = ("model", "prompt", "language")
PLAIN_VALUES = (b"", b"whisper-1", b"a\r\nb", "\u00e4".encode())


class Part(Struct, frozen=True):
    """One part."""

    form: str
    name: str
    value: bytes
    extra: bytes
    end: bytes

    def encode(self, boundary: bytes) -> bytes:
        """The bytes."""
        head = f"Content-Disposition: {self.form.format(self.name)}\r\n".encode("latin-1")
        return b"--%b\r\n%b%b\r\n%b%b" % (boundary, head, self.extra, self.value, self.end)


class Body(Struct, frozen=True):
    """One body."""

    boundary: str
    quoted: bool
    parts: list[Part]
    repeat: int  # times that all parts are sent
    last: bytes
    damages: list[Damage]
    cuts: list[int]

    def encode(self) -> bytes:
        """The bytes."""
        boundary = self.boundary.encode("latin-1")
        parts = b"".join(part.encode(boundary) for part in self.parts) * self.repeat
        return damaged(parts + b"--" + boundary + self.last, self.damages)


def plain_part(choices: Choices) -> Part:
    """A valid text."""
    return Part('form-data; name="{}"', choices.of(PLAIN_NAMES), choices.of(PLAIN_VALUES), b"", b"\r\n")


def odd_part(choices: Choices) -> Part:
    """A part that may be invalid."""
    value = choices.of(LARGE) if choices.one_in(60) else choices.data(40) if choices.one_in(4) else choices.of(VALUES)
    end = b"\r\n" if not choices.one_in(4) else choices.pick(b"", b"\n", b"\r")
    return Part(choices.of(FORMATS), choices.of(NAMES), value, choices.of(EXTRA), end)


class MultipartTarget:
    """`FormReader`."""

    name = "multipart"
    seconds = 1.0

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()

    def make(self, choices: Choices) -> Body:
        plain = choices.one_in(2)
        parts = choices.many(lambda: plain_part(choices) if plain else odd_part(choices), 6)
        last = choices.pick(b"--\r\n", b"--\r\n", b"--", b"", b"\r\n", b"-", b"--\r\nepilogue", b"--x")
        damages = damages_of(choices) if choices.one_in(2) else []
        repeat = choices.pick(1, 1, 1, 1, 1, 1, 2, 40)
        return Body(choices.of(BOUNDARIES), choices.one_in(2), parts, repeat, last, damages, cuts_of(choices))

    def check(self, case: Body) -> None:
        data = case.encode()
        boundary = f'"{case.boundary}"' if case.quoted else case.boundary
        content_type = f"multipart/form-data; boundary={boundary}"
        cuts = [] if len(data) > 20_000 and -1 in case.cuts else case.cuts
        whole = self._loop.run_until_complete(self._read(content_type, [data]))
        cut = self._loop.run_until_complete(self._read(content_type, pieces(data, cuts)))
        form, stored = whole
        if isinstance(form, str):  # the parser may name another fault of it, depending on where it is cut
            assert isinstance(cut[0], str), (data, cut)
            return
        assert whole == cut, data
        assert len(form.texts) <= MAX_PARTS
        assert sum(len(value.encode()) for _, value in form.texts) + len(stored) <= len(data)
        if is_plain(case):
            sent = [(part.name, part.value.decode()) for part in case.parts] * case.repeat
            assert form.texts == sent, data

    def close(self) -> None:
        self._loop.close()
        self._folder.cleanup()

    async def _read(self, content_type: str, stream: Sequence[bytes]) -> tuple[Form | str, bytes]:
        """The form and its file, or the refusal."""
        spool = Spool(Path(self._folder.name))
        reader = None
        try:
            reader = FormReader(content_type, spool, file="file")
            for piece in stream:
                reader.feed(piece)
                if spool.full:
                    await spool.drain()
            form = reader.finish()
            stored = b"".join([piece async for piece in spool.chunks()])
        except GatewayError as error:
            assert error.status < 500, error
            return f"{type(error).__name__}: {error}", b""
        finally:
            if reader is not None:
                reader.close()
            spool.close()
        return form, stored


def is_plain(case: Body) -> bool:
    """Whether the body is valid and has plain parts only."""
    simple = all(
        part.form == 'form-data; name="{}"' and part.name in ("model", "prompt", "language") for part in case.parts
    )
    values = all(part.end == b"\r\n" and not part.extra and b"--" not in part.value for part in case.parts)
    return (
        simple
        and values
        and case.last.startswith(b"--")
        and not case.damages
        and len(case.parts) * case.repeat < MAX_PARTS
    )
