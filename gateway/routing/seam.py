"""Where the text of a second target joins what was delivered of the first: only where it is proved to fit.

`Restart` reads an answer that begins again: it is compared with the delivered text, and from the first new character on
it is new. `Prefilled` reads an answer whose target was asked to go on and knows how: it goes on, repeats the end, or
begins again. Both hold text back until this is known, and raise `NotJoined` where the text may be another answer.

What a text alone cannot prove is not joined. A repeated end counts from `OVERLAP` characters on that occur once in the
delivered text, because "ha" after "ha" may be new; from `GLUED` on if no white space is between, or if it is the whole
text, because new words would come after white space. Sharp edge: a target that is known to go on is believed in the
rest, so text in a script without capitals that has nothing in common with the delivered text is taken for its rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

Form = Literal["prefill", "overlap", "restart"]

OVERLAP, GLUED = 24, 6  # characters of a repeated end
WINDOW = 4096  # characters before the end in which a repetition may begin
UNDECIDED = 512  # characters after which several repetitions must have become one
AGAIN = 6  # characters of the beginning, after white space, with which no rest begins
LONGEST_PERIOD = 512  # characters of a part that a text repeats
HEAD = 64  # characters that are enough to see how a text begins
BLANK = 4096  # characters of white space before a text; more of it is not held, and not joined

#: How a model begins to talk about its answer instead of going on, in lower case.
TALK = (
    "sure", "certainly", "of course", "here is", "here's", "here are", "i apologize", "i'm sorry", "i am sorry",
    "sorry", "continuing", "as an ai", "let me continue", "okay", "ok,", "understood", "absolutely", "i'll continue",
    "i will continue", "i can't", "i cannot", "to continue", "picking up", "natürlich", "gerne", "bien sûr",
    "claro", "por supuesto", "certo", "конечно", "当然", "好的", "もちろん", "물론",
)  # fmt: skip


class NotJoined(Exception):
    """The text may be another answer."""


class Seam(Protocol):
    """Reads the text of the second target."""

    @property
    def form(self) -> Form:
        """How it joins, once that is known."""

    def feed(self, piece: str) -> str | None:
        """The new text in `piece` and all that was held before; None while it is not known. Raises NotJoined."""

    def end(self) -> str:
        """The new text if nothing follows. Raises NotJoined."""

    def before_call(self) -> str:
        """The new text if a tool call follows. Raises NotJoined."""


class Restart:
    """An answer that must begin with the whole delivered text."""

    form: Form = "restart"

    def __init__(self, delivered: str) -> None:
        self._delivered = delivered
        self._agrees = 0  # characters

    def feed(self, piece: str) -> str | None:
        left = len(self._delivered) - self._agrees
        if not self._delivered.startswith(piece[:left], self._agrees):
            raise NotJoined
        self._agrees += min(left, len(piece))
        return piece[left:] or None

    def end(self) -> str:
        if self._agrees < len(self._delivered):
            raise NotJoined
        return ""

    before_call = end


class Prefilled:
    """An answer of a target that was given the delivered text, without white space at its end, to go on with."""

    def __init__(self, delivered: str) -> None:
        self.form: Form = "prefill"
        self._delivered = delivered
        self._sent = len(delivered.rstrip())  # characters that the target has seen
        self._held: list[str] = []
        self._size = 0
        self._head = ""  # the first characters of the held text, from the first one that is not white space
        self._begins: list[int] = []  # places of the delivered text from which on the held text may repeat it

    def feed(self, piece: str) -> str | None:
        if not piece:
            return None
        self._narrow(piece)
        if any(map(self._is_open, self._begins)):
            if self._size > UNDECIDED and len(self._begins) > 1:
                raise NotJoined
            return None
        return None if self._may_change() else self._decided()

    def end(self) -> str:
        if not self._head:
            raise NotJoined  # an answer without any text proves nothing
        if any(self._is_open(begin) and (not begin or self._size >= OVERLAP) for begin in self._begins):
            raise NotJoined  # it repeats a part and stops
        return self._decided()

    def before_call(self) -> str:
        return self.end() if self._size else ""

    def _narrow(self, piece: str) -> None:
        """Hold `piece`, and keep the places from which on the delivered text agrees with it."""
        delivered, before = self._delivered, self._size
        begins: Iterable[int] = self._begins
        if not before:
            begins = (0, *range(max(1, len(delivered) - WINDOW), self._sent))
        self._begins = [
            begin
            for begin in begins
            if begin + before >= len(delivered)
            or delivered.startswith(piece[: len(delivered) - begin - before], begin + before)
        ]
        self._held.append(piece)
        self._size += len(piece)
        if len(self._head) < HEAD:
            self._head = (self._head + (piece if self._head else piece.lstrip()))[:HEAD]

    def _is_open(self, begin: int) -> bool:
        """Whether a repetition from `begin` on has not reached the end of the delivered text."""
        return len(self._delivered) - begin > self._size

    def _may_change(self) -> bool:
        """Whether the next characters may say that it is talk, or begins again, or which white space it has."""
        text = self._head
        if self._begins:
            return False
        if not text:
            if self._size > BLANK:
                raise NotJoined
            return True
        begin = self._delivered.lstrip()[:AGAIN]
        return begin.startswith(text) or any(talk.startswith(text.casefold()) for talk in TALK)

    def _decided(self) -> str:
        """The new text; raises NotJoined."""
        held = "".join(self._held)
        begin = next((begin for begin in self._begins if not self._is_open(begin)), None)
        if begin is None:
            return self._going_on(held)
        if not self._is_repetition(begin):
            raise NotJoined
        self.form = "overlap" if begin else "restart"
        return held[len(self._delivered) - begin :]

    def _is_repetition(self, begin: int) -> bool:
        """Whether text that repeats the delivered text from `begin` on is hardly new text."""
        delivered = self._delivered
        repeated = delivered[begin:]
        if delivered.find(repeated) != begin or _repeats_itself(repeated):
            return False
        begins_word = not begin or delivered[begin - 1].isspace()
        is_glued = begins_word and not repeated[0].isspace() and not (begin and delivered[-1].isspace())
        return len(repeated) >= (GLUED if is_glued else OVERLAP)

    def _going_on(self, held: str) -> str:
        delivered, text = self._delivered, held.lstrip()
        before, space = held[: len(held) - len(text)], delivered[self._sent :]
        first = delivered.lstrip()
        if len(before) > BLANK:
            raise NotJoined
        if text.casefold().startswith(TALK) or text.startswith(first[:AGAIN]):
            raise NotJoined
        if held.startswith(delivered[: len(delivered) - len(first) + 1]):
            raise NotJoined  # it may begin again, and differ
        if not before:
            if text[0].isupper():
                raise NotJoined  # as the first word of an answer; within a text, white space comes before it
            return text
        if before.startswith(space):
            return held[len(space) :]
        if space.startswith(before):
            return text
        raise NotJoined


def _repeats_itself(text: str) -> bool:
    """Whether the text ends with one part twice or more, whole or not, so that one more may be new."""
    end = text[-WINDOW:]
    return any(end.startswith(end[period:]) for period in range(1, min(len(end) // 2, LONGEST_PERIOD) + 1))
