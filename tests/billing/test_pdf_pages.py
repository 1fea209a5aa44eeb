"""Pages of a PDF: real layouts, numbers that lie, and hostile bytes, which take bounded time and raise nothing."""

from __future__ import annotations

import base64
import json
import random
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.billing.pdf_pages as module
from gateway.billing.pdf_pages import MAX_COUNTS, MAX_ENCODED, MAX_INFLATED, MAX_STREAMS, InflateBudget, pdf_pages
from gateway.billing.token_estimate import PER_PAGE, PromptEstimate, chat_prompt
from gateway.schemas.chat_request import decode_chat_request

from .pdfs import file_part, object_stream, page_tree, scanned


def pages(document: bytes) -> int:
    return pdf_pages(document, InflateBudget())


def estimate(*documents: bytes, kind: str = "application/pdf") -> PromptEstimate:
    """The estimate of a request with these documents."""
    content = [file_part(document, kind) for document in documents]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    return chat_prompt(decode_chat_request(body))


@pytest.mark.parametrize("object_streams", [False, True])
@pytest.mark.parametrize("number", [1, 7, 300])
def test_pages_are_found(number: int, *, object_streams: bool) -> None:
    assert pages(scanned(number, size=100_000, object_streams=object_streams)) == number


@pytest.mark.holds("prices.md#estimates-6")
def test_larger_of_claimed_and_found_pages_counts() -> None:
    assert pages(page_tree(5, count=1)) == 5
    assert pages(page_tree(5, count=40)) == 40
    assert pages(page_tree(5, count=1) + object_stream([b"<</Type/Page>>"] * 3)) == 8


def test_bookmarks_and_fonts_are_no_pages() -> None:
    outline = b"9 0 obj\n<</Type/Outlines/First 10 0 R/Last 11 0 R/Count 700>>\nendobj\n"
    item = b"10 0 obj\n<</Title(Chapter)/Parent 9 0 R/Count 600>>\nendobj\n"
    assert pages(page_tree(3) + outline + item + b"<</Type/PageLabels>> <</Type/Font>>") == 3


@pytest.mark.holds("prices.md#estimates-6")
def test_document_without_known_pages_counts_one_for_4_kib() -> None:
    assert estimate(b"%PDF-1.7\n" + bytes(40_000)).text == pytest.approx(10 * PER_PAGE, abs=100)
    assert estimate(b"no pdf at all" * 1_000).text == pytest.approx(4 * PER_PAGE, abs=100)


def test_document_is_known_by_its_first_bytes_too() -> None:
    document = scanned(4, size=100_000)
    assert estimate(document, kind="application/octet-stream").text == estimate(document).text


def test_all_documents_of_a_request_share_what_is_inflated() -> None:
    budget = InflateBudget()
    bomb = object_stream([b" " * MAX_INFLATED])
    assert pdf_pages(bomb + object_stream([b"<</Type/Page>>"]), budget) == 0
    assert budget.bytes == 0
    assert pdf_pages(page_tree(2, object_streams=True), budget) == 0
    assert pdf_pages(page_tree(2), budget) == 2


def test_stream_that_breaks_off_uses_up_what_may_be_inflated() -> None:
    budget = InflateBudget()
    pdf_pages(_broken_bomb() * 3, budget)
    assert budget.bytes < MAX_INFLATED // 2


def test_packed_bytes_that_inflate_to_nothing_use_up_what_may_be_inflated() -> None:
    packer = zlib.compressobj(9)
    empty = packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)
    empty += b"\x00\x00\x00\xff\xff" * 20_000  # stored blocks of no bytes
    budget = InflateBudget()
    pdf_pages(b"<</Type/ObjStm>>\nstream\n" + empty + b"\nendstream\n", budget)
    assert budget.bytes <= MAX_INFLATED - 5 * 20_000


def _rising(most: int) -> bytes:
    return b"".join(b"/Count %d " % number for number in range(1, most))


@pytest.mark.parametrize("streams", [True, False])
def test_numbers_of_pages_that_are_looked_at_are_bounded_for_the_whole_request(
    monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    looked: list[int] = []

    def counted(part: bytes, at: int) -> bool:
        looked.append(at)
        return False

    monkeypatch.setattr(module, "_is_outline", counted)
    if streams:
        estimate(b"%PDF-1.7\n" + object_stream([_rising(360)]) * 100)
    else:
        estimate(*[b"%PDF-1.7\n" + _rising(MAX_COUNTS)] * 3)
    assert len(looked) <= MAX_COUNTS


def test_documents_beyond_those_looked_at_count_by_their_size() -> None:
    found = estimate(*[scanned(1, size=40_000)] * 70)
    assert found.text == pytest.approx((64 + 6 * 10) * PER_PAGE, abs=4 * PER_PAGE)


@pytest.mark.holds("prices.md#estimates-6")
@pytest.mark.slow
@pytest.mark.parametrize("object_streams", [False, True])
def test_pages_of_large_documents_are_found_at_their_ends(*, object_streams: bool) -> None:
    found = estimate(*[scanned(20, size=MAX_ENCODED, object_streams=object_streams)] * 3)
    assert found.text == pytest.approx(3 * 20 * PER_PAGE, abs=100)
    at_the_beginning = b"%PDF-1.7\n" + page_tree(30, object_streams=object_streams) + bytes(MAX_ENCODED)
    assert estimate(at_the_beginning).text == pytest.approx(30 * PER_PAGE, abs=100)


def test_large_document_whose_page_tree_is_not_at_its_ends_counts_by_its_size() -> None:
    half = bytes(MAX_ENCODED // 2)
    found = estimate(b"%PDF-1.7\n<</Type/Page>>" + half + page_tree(3) + half)
    assert found.text == pytest.approx(MAX_ENCODED / 4096 * PER_PAGE, rel=0.01)


@given(st.lists(st.sampled_from([b"/Type/Page", b"/Count ", b"9", b"<<", b">>", b"/ObjStm", b"stream\n", b"endstream",
                                 zlib.compress(b"/Type/Page"), b"\xff", b" "]), max_size=40))  # fmt: skip
def test_any_bytes_are_searched(parts: list[bytes]) -> None:
    document = b"%PDF-1.4 " + b"".join(parts)
    assert pages(document) >= 0
    assert estimate(document).text > 0


@given(st.text(max_size=200))
def test_any_text_may_stand_in_place_of_base64(text: str) -> None:
    part = {"type": "file", "file": {"file_data": "data:application/pdf;base64," + text}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert chat_prompt(decode_chat_request(body)).text > 0


# Time ----------------------------------------------------------------------------------------------------------------


def _broken_bomb() -> bytes:
    """An object stream that inflates to almost all that may be inflated, and then breaks off."""
    packer = zlib.compressobj(9)
    almost_all = packer.compress(bytes(MAX_INFLATED - 4096)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"<</Type/ObjStm>>\nstream\n" + almost_all + b"\x07\xff\xff\nendstream\n"  # a block of no known type


def _empty_blocks() -> bytes:
    """A deflated MiB of blocks with a table of codes and no bytes."""
    block = bytes.fromhex("ecdd810800000000207fea277991")
    return b"\x78\xda" + block * ((1 << 20) // len(block))


SIZE = 23 << 20  # as base64 it fills a body of 31 MiB
HOSTILE: dict[str, Callable[[], bytes]] = {
    "scan": lambda: scanned(20, size=SIZE),
    "noise": lambda: random.Random(1).randbytes(SIZE),
    "page objects": lambda: b"/Type/Page " * (SIZE // 11),
    "types": lambda: b"/Type " * (SIZE // 6),
    "spaces": lambda: b"/Type" + b" " * SIZE,
    "many spaces": lambda: (b"/Type" + b" " * 17) * (SIZE // 22),
    "counts": lambda: b"/Count 1 " * (SIZE // 9),
    "rising counts": lambda: b"".join(b"/Title/Count %d " % number for number in range(1_000_000)),
    "object streams": lambda: b"/ObjStm stream\n" * (SIZE // 15),
    "streams without an end": lambda: b"/ObjStm stream\n" + bytes(SIZE),
    "ends": lambda: b"/ObjStm stream\nendstream" * (SIZE // 24),
    "bombs": lambda: object_stream([b"/Type/Page" * (1 << 20)]) * 200,
    "countless spaces": lambda: (b"/Count" + b" " * 17) * (SIZE // 23),
    "rising counts in streams": lambda: object_stream([_rising(9_999)]) * 64,
    "bombs of page objects": lambda: object_stream([b"/Type/Page" * 4_096]) * MAX_STREAMS,
    "bombs and types": lambda: (
        (object_stream([b"/Type " * 1_000]) * 1_000).ljust(SIZE - 4_000_000) + b"/Type " * 700_000
    ),
    "broken bombs": lambda: _broken_bomb() * MAX_STREAMS,
    "empty blocks": lambda: (b"/ObjStm stream\n" + _empty_blocks() + b"endstream ") * 23,
    "small bombs": lambda: object_stream([bytes(1 << 12)]) * MAX_STREAMS,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_searched_within_three_times_the_decoding_of_their_base64(name: str) -> None:
    document = b"%PDF-1.7\n" + HOSTILE[name]()
    data = base64.b64encode(document[:SIZE].ljust(SIZE)).decode()
    part = {"type": "file", "file": {"file_data": "data:application/pdf;base64," + data}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    request = decode_chat_request(body)
    estimating = min(_seconds(lambda: chat_prompt(request)) for _ in range(3))
    decoding = min(_seconds(lambda: base64.b64decode(data)) for _ in range(3))
    print(f"{name}: {estimating:.3f} s, base64 {decoding:.3f} s")
    assert estimating < 3 * decoding  # it was 1.5 times at most: 0.05 s


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of this thread's processor: other processes do not count."""
    started = time.thread_time()
    work()
    return time.thread_time() - started
