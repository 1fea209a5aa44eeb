"""Data URLs: taken apart as callers write them, and images told by what they are."""

from __future__ import annotations

import base64

import pytest

from gateway.errors import InvalidValue
from gateway_providers._shared.data_url import DataURL, image_type, is_data_url, read_data_url


@pytest.mark.parametrize(
    ("url", "media_type", "data"),
    [
        ("data:image/png;base64,AAAA", "image/png", "AAAA"),
        ("DATA:Image/PNG;charset=utf-8;BASE64,AAAA", "image/png", "AAAA"),
        ("data:image/png;base64,AA%2BA%3D%3D", "image/png", "AA+A=="),
        ("data:image/png;base64,AA\r\n AA", "image/png", "AAAA"),
        ("data:;base64,AAAA", "", "AAAA"),
    ],
)
def test_data_url_is_parsed(url: str, media_type: str, data: str) -> None:
    assert is_data_url(url) and read_data_url(url, "p") == DataURL(media_type, data)


@pytest.mark.parametrize("url", ["data:image/png,AAAA", "data:image/png;base64", "data:;base64, ", "http:;base64,AA"])
def test_anything_else_is_refused_by_its_path(url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        read_data_url(url, "messages[0]")
    assert caught.value.param == "messages[0]"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xdb", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", ""),
        (b"BM", ""),
    ],
)
def test_image_types_are_detected_by_the_first_bytes(head: bytes, kind: str) -> None:
    assert image_type(base64.b64encode(head + bytes(40)).decode()) == kind


def test_invalid_base64_has_no_media_type() -> None:
    assert image_type("A") == "" and image_type("") == ""


def test_text_is_decoded_or_refused() -> None:
    assert DataURL("text/plain", base64.b64encode("é".encode()).decode()).text_of("p") == "é"
    for data in ("/w==", "A", "*AAA"):
        with pytest.raises(InvalidValue):
            DataURL("text/plain", data).text_of("p")
