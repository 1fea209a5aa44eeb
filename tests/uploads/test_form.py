"""Forms as they arrive: any order, any cut, any boundary; and what is no form."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequest, GatewayError, UnsupportedContentType
from gateway.uploads.form import MAX_LARGE_TEXT, MAX_PARTS, MAX_TEXT, Form, FormReader
from gateway.uploads.spool import Spool
from tests.quick import examples

DASHES = "-" * 60  # a boundary that its own beginnings resemble
SOUND = bytes(range(256)) * 8
HEAD = b'--edge\r\nContent-Disposition: form-data; name="a"'
Part = tuple[str, bytes, str | None]  # name, content, file name
PLAIN: list[Part] = [("model", b"whisper-1", None), ("file", SOUND, "a.wav"), ("language", b"de", None)]


def encode(parts: Sequence[Part], boundary: str = "edge") -> bytes:
    body = b""
    for name, content, filename in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
        if filename is not None:
            head += f'; filename="{filename}"\r\nContent-Type: audio/wav'
        body += head.encode() + b"\r\n\r\n" + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


def read(
    body: bytes, *, boundary: str = "edge", step: int = 1 << 20, large_fields: Sequence[str] = ()
) -> tuple[Form, bytes]:
    spool = Spool(Path("unused"))
    reader = FormReader(f"multipart/form-data; boundary={boundary}", spool, file="file", large_fields=large_fields)
    for start in range(0, len(body), step):
        reader.feed(body[start : start + step])
    return reader.finish(), bytes(spool._buffer)


@pytest.mark.parametrize("step", [1, 3, 64, 1 << 20])
def test_form_is_the_same_for_any_split(step: int) -> None:
    form, sound = read(encode(PLAIN), step=step)
    assert form.texts == [("model", "whisper-1"), ("language", "de")]
    assert (form.filename, form.content_type, sound) == ("a.wav", "audio/wav", SOUND)


def test_parts_are_accepted_in_any_order() -> None:
    form, sound = read(encode(list(reversed(PLAIN))))
    assert form.texts == [("language", "de"), ("model", "whisper-1")]
    assert sound == SOUND


@pytest.mark.parametrize("before", [b"x", b"\r\0\0", b"\r\n \r\n"])
@pytest.mark.parametrize("step", [1, 2, 1 << 20])
def test_text_before_the_first_boundary_is_refused(before: bytes, step: int) -> None:
    assert read(b"\r\n" + encode(PLAIN), step=step) == read(encode(PLAIN))
    with pytest.raises(BadRequest, match="not valid multipart"):
        read(before + encode(PLAIN), step=step)


def test_events_after_the_end_are_not_part_of_the_answer() -> None:
    assert read(encode(PLAIN) + b"epilogue")[0].texts == read(encode(PLAIN))[0].texts


def test_file_part_needs_no_file_name() -> None:
    form, sound = read(encode([("file", SOUND, None)]))
    assert (form.filename, sound) == ("", SOUND)


def test_content_that_looks_like_a_boundary_is_content() -> None:
    tricky = b"\r\n--edg\r\n--edgE--\r\n\r\n-" * 500
    for step in (1, 5, 1000):
        assert read(encode([("file", tricky, "a.wav")]), step=step)[1] == tricky


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 1 << 20])
def test_form_without_its_end_is_refused_at_every_byte(step: int) -> None:
    body = encode(PLAIN)
    for stop in range(len(body) - 2):  # without its last line break it is whole
        with pytest.raises(BadRequest):
            read(body[:stop], step=step)


# What two forms have in common ---------------------------------------------------------------------------------------


def digest(parts: Sequence[Part], *, boundary: str = "edge", step: int = 1 << 20) -> str:
    return read(encode(parts, boundary), boundary=boundary, step=step)[0].digest


def test_digest_ignores_the_boundary_and_the_splits() -> None:
    assert digest(PLAIN) == digest(PLAIN, boundary=secrets.token_hex(16)) == digest(PLAIN, step=11)


def test_digest_differs_for_another_form() -> None:
    others: list[list[Part]] = [
        [("model", b"whisper-2", None), *PLAIN[1:]],
        [PLAIN[0], ("file", SOUND + b"!", "a.wav"), PLAIN[2]],
        [PLAIN[0], ("file", SOUND, "b.wav"), PLAIN[2]],
        PLAIN[:2],
        [PLAIN[1], PLAIN[0], PLAIN[2]],
        [("modelw", b"hisper-1", None), *PLAIN[1:]],
        [("model", b"whisper-1de", None), PLAIN[1], ("language", b"", None)],
    ]
    found = {digest(parts) for parts in (PLAIN, *others)}
    assert len(found) == 1 + len(others)


def test_digest_separates_content_from_part_ends() -> None:
    assert digest([("b", b"1", None), ("c", b"2", None)]) != digest([("c", b"1b\x002", None)])


# What is no form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "multipart/mixed; boundary=x", "multipart/form-datum"]
)
def test_other_media_types_are_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedContentType):
        FormReader(content_type, Spool(Path("unused")), file="file")


@pytest.mark.parametrize("boundary", ["", "; boundary=", f"; boundary={'x' * 71}", '; boundary="a\nb"', "; boundary=ä"])
def test_invalid_boundaries_are_refused(boundary: str) -> None:
    with pytest.raises(BadRequest):
        FormReader(f"multipart/form-data{boundary}", Spool(Path("unused")), file="file")


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([*PLAIN, ("file", SOUND, "b.wav")], "file"),
        ([("prompt", b"\xff\xfe", None)], "prompt"),
        ([("prompt", bytes(MAX_TEXT + 1), None)], "prompt"),
        ([("reference[]", bytes(MAX_LARGE_TEXT + 1), None)], "reference[]"),
        ([("reference[]", bytes(MAX_LARGE_TEXT), None)] * 6, None),
        ([("a", b"b", None)] * (MAX_PARTS + 1), None),
    ],
)
def test_forms_beyond_their_bounds_are_refused(parts: list[Part], param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        read(encode(parts), large_fields=("reference",))
    assert caught.value.param == param


def test_text_up_to_its_bound_is_accepted() -> None:
    form, _ = read(
        encode([("prompt", b"a" * MAX_TEXT, None), ("reference[]", b"b" * MAX_LARGE_TEXT, None)]),
        large_fields=("reference",),
    )
    assert [len(text) for _, text in form.texts] == [MAX_TEXT, MAX_LARGE_TEXT]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"--edge",
        b"--edge\r\n\r\nno name\r\n--edge--",
        b'--edge\r\nContent-Disposition: attachment; name="a"\r\n\r\nb\r\n--edge--',
        HEAD + b"\r\nContent-Transfer-Encoding: base64\r\n\r\nYg==\r\n--edge--",
        HEAD + b"\nX: y\r\n\r\nb\r\n--edge--",
        b"--edge\r\n" + b"X: y\r\n" * 1000,
        b"--edge\r\nX: " + b"y" * 100_000,
        b"--other\r\n",
    ],
)
def test_malformed_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        read(body)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(
            [b"--edge", b"--edge--", b"\r\n", b"\r", b"\n", b"--", b"\r\n--edge\r\n", HEAD[8:], b'; filename="x"',
             b"\r\n\r\n", b"\0", b"name=", b'"', b"Content-Disposition: form-data; name=file\r\n\r\n"]
        )
        | st.binary(max_size=20),
        max_size=30,
    ),
    step=st.integers(1, 50),
)  # fmt: skip
def test_any_bytes_are_a_form_or_a_bad_request(pieces: list[bytes], step: int) -> None:
    try:
        read(b"--edge\r\n" * (step % 2) + b"".join(pieces), step=step)
    except GatewayError as error:
        assert error.status == 400


def cost_of_file(piece: bytes, size: int) -> float:
    """Seconds of CPU time for a file that repeats `piece`."""
    spool = Spool(Path("unused"))
    reader = FormReader(f"multipart/form-data; boundary={DASHES}", spool, file="file")
    reader.feed(f'--{DASHES}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'.encode())
    data = (piece * (size // len(piece) + 1))[:size]
    before = time.thread_time()
    for start in range(0, size, 65_536):
        reader.feed(data[start : start + 65_536])
    spent = time.thread_time() - before
    reader.close()
    assert spool.size > size - 200
    return spent


@pytest.mark.parametrize(
    "piece",
    [
        b"\r",
        b"\r\n",
        b"-",
        b"\r\n" + b"-" * 63,
        f"\r\n--{DASHES[:-1]}x".encode(),
        f"\r\n--{DASHES}x".encode(),
        f"\r\n--{DASHES}-x".encode(),
        f"\r\n--{DASHES}\rx".encode(),
    ],
)
def test_time_for_a_file_that_resembles_the_boundary_grows_with_its_size(piece: bytes) -> None:
    # Four times the size takes four times as long; a scan that begins anew at each resemblance takes sixteen times.
    small = min(cost_of_file(piece, 1 << 19) for _ in range(3))
    large = min(cost_of_file(piece, 1 << 21) for _ in range(3))
    assert large < 9 * small + 0.005
