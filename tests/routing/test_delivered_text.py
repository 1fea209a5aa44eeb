"""What is kept of a stream for its continuation: its text, up to a limit, and whether there was more than text."""

from __future__ import annotations

from msgspec import Raw

from gateway.routing.delivered_text import MANY, MAX_TEXT, DeliveredText
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, Delta


def test_text_is_kept_whole_however_it_came() -> None:
    delivered = DeliveredText()
    for number in range(3 * MANY):
        delivered.note(ChatChunk.text(f"{number} "))
    assert delivered.text == "".join(f"{number} " for number in range(3 * MANY))
    assert len(delivered.texts) <= MANY + 1


def test_nothing_is_kept_of_too_long_a_text() -> None:
    delivered = DeliveredText()
    for _ in range(3 * MANY):
        delivered.note(ChatChunk.text("x" * (MAX_TEXT // MANY)))
    assert delivered.text == ""
    assert sum(map(len, delivered.texts)) <= 2 * MAX_TEXT


def test_texts_of_the_fast_path_keep_their_place_and_are_counted() -> None:
    delivered = DeliveredText()
    delivered.note(ChatChunk.text("a"))
    delivered.fast.extend(["b", "c"])
    delivered.note(ChatChunk.text("d"))
    delivered.fast.extend(["e"])
    assert delivered.text == "abcde"
    assert delivered.take_fast() == 3


def test_half_a_character_at_the_end_is_left_out() -> None:
    delivered = DeliveredText()
    delivered.note(ChatChunk.text("Hi \ud83d"))
    assert delivered.text == "Hi "


def test_a_call_or_a_second_choice_is_more_than_text() -> None:
    for chunk in (ChatChunk.tool_call(0, id="a", name="f"), ChatChunk.text("x", index=1)):
        delivered = DeliveredText()
        delivered.note(ChatChunk.text("Hi"))
        delivered.note(chunk)
        assert delivered.text == ""


def test_empty_parts_are_none() -> None:
    delivered = DeliveredText()
    empty = Delta(content="Hi", tool_calls=[], refusal="", reasoning_content="", annotations=Raw(b"[]"))
    delivered.note(ChatChunk(choices=[ChunkChoice(delta=empty)]))
    assert (delivered.text, delivered.has_reasoning) == ("Hi", False)


def test_reasoning_and_the_end_are_noted() -> None:
    delivered = DeliveredText()
    delivered.note(ChatChunk.reasoning("Hm"))
    delivered.note(ChatChunk.text("Hi"))
    assert (delivered.has_reasoning, delivered.finish, delivered.text) == (True, "", "Hi")
    delivered.note(ChatChunk.finish("stop"))
    assert delivered.finish == "stop"
