"""Finds sections by words: of the title, of the page, and of the text. Time and size of a search are bounded.

A word of a query finds also words that begin with it. Sections with all words are found, or, where there is none, those
with some of them. Rare words count more, and words of a title more than words of the text.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from msgspec import Struct

from gateway.manual.headings import Section

MOST_CHARACTERS: Final = 200  # of a query
MOST_WORDS: Final = 8  # of a query
MOST_FORMS: Final = 64  # words of the pages that begin with one of a query
MOST_READ: Final = 20_000  # entries of the index for one query
MOST_HITS: Final = 30
AROUND: Final = 110  # characters before and after the first word that is found
TITLE, OF_PAGE = 8.0, 3.0  # what the words of a title count together, beside a word of the text
DEFINED: Final = 3.0  # what a word counts that a row of a table is about
PHRASE: Final = 20.0  # what the words of the query count beside each other
MOST_COMPARED: Final = 100  # of the best sections are searched for the words beside each other
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]+")


class Hit(Struct, frozen=True):
    """A section that was found, with the text around the first word, as HTML with marks."""

    section: Section
    excerpt: str


class Hits(Struct, frozen=True):
    """The best sections, and how many there are."""

    best: list[Hit]
    total: int


class SearchIndex:
    """The words of all sections. It does not change."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections
        self._weights: dict[str, list[tuple[int, float]]] = {}  # by word: sections, and what the word counts there
        collected = defaultdict[str, list[tuple[int, float]]](list)
        for number, section in enumerate(sections):
            for word, weight in _weights(section).items():
                collected[word].append((number, weight))
        self._weights = dict(collected)
        self._words = sorted(self._weights)

    def search(self, query: str) -> Hits:
        """The sections for the words of a query; none for a query without words."""
        words = query_words(query)
        found, scores = Counter[int](), defaultdict[int, float](float)
        read = 0
        for word in words:
            best = dict[int, float]()
            for form in self._forms(word):
                entries = self._weights[form][: MOST_READ - read]
                read += len(entries)
                factor = self._rarity(word if word in self._weights else form) * (1.0 if form == word else 0.5)
                for number, weight in entries:
                    best[number] = max(best.get(number, 0.0), weight * factor)
            found.update(best.keys())
            for number, score in best.items():
                scores[number] += score
        complete = [number for number in found if found[number] == len(words)]
        ranked = sorted(complete or found, key=lambda number: (-scores[number], number))
        if len(words) > 1:
            for number in ranked[:MOST_COMPARED]:
                scores[number] += PHRASE * self._has_phrase(number, words)
            ranked.sort(key=lambda number: (-scores[number], number))
        best_hits = [Hit(section, excerpt(section.text, words)) for section in self._chosen(ranked[:MOST_HITS])]
        return Hits(best_hits, len(ranked))

    def _chosen(self, numbers: Iterable[int]) -> Iterator[Section]:
        return (self._sections[number] for number in numbers)

    def _forms(self, word: str) -> list[str]:
        """The words of the pages that a word of a query finds, itself first."""
        first = bisect_left(self._words, word)
        found = list[str]()
        for form in self._words[first : first + MOST_FORMS]:
            if not form.startswith(word) or (len(word) == 1 and form != word):
                break
            found.append(form)
        return found

    def _has_phrase(self, number: int, words: Sequence[str]) -> int:
        """How often a section has the words beside each other: 1 in its text, and 2 in its title."""
        phrase, section = _phrase(words), self._sections[number]
        return bool(phrase.search(section.text)) + 2 * bool(phrase.search(section.heading.title))

    def _rarity(self, word: str) -> float:
        return math.pow(math.log(1.0 + len(self._sections) / len(self._weights[word])), 1.5)


def _phrase(words: Sequence[str]) -> re.Pattern[str]:
    """Finds the words beside each other in plain text."""
    return re.compile(r"\b" + r"[ /-]".join(map(re.escape, words)), re.IGNORECASE)


def query_words(query: str) -> list[str]:
    """The different words of a query."""
    return list(dict.fromkeys(_WORD.findall(query[:MOST_CHARACTERS].lower())))[:MOST_WORDS]


def _words_of(text: str) -> Iterator[str]:
    """Each word; of one such as `first_token_ms` its parts, too."""
    for word in _WORD.findall(text.lower()):
        yield word
        if "_" in word:
            yield from _PART.findall(word)


def _weights(section: Section) -> dict[str, float]:
    """What each word counts in a section: one that comes often counts little more than one that comes twice."""
    counted = Counter(_words_of(section.text))
    found = {word: count / (count + 1.0) * 2.0 for word, count in counted.items()}
    for word in {word for text in section.defined for word in _WORD.findall(text.lower())}:
        found[word] += DEFINED
    for text, weight in ((section.heading.title, TITLE), (section.page_title, OF_PAGE)):
        words = set(_words_of(text))
        for word in words:
            found[word] = found.get(word, 0.0) + weight / math.sqrt(len(words))
    return found


def excerpt(text: str, words: Sequence[str]) -> str:
    """HTML of the text around the words: where they are beside each other, or the first one, or the beginning.

    All of them are marked.
    """
    marked = re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, words))})\w*", re.IGNORECASE) if words else None
    first = (_phrase(words).search(text) or marked.search(text)) if marked else None
    begin = max(first.start() - AROUND, 0) if first else 0
    if begin:
        begin = text.find(" ", begin, begin + 30) + 1 or begin
    end = begin + 2 * AROUND + 40
    if end < len(text):
        end = text.rfind(" ", end - 30, end) if " " in text[end - 30 : end] else end
    part = text[begin:end]
    pieces, at = list[str](), 0
    for match in marked.finditer(part) if marked else ():
        pieces += [escape(part[at : match.start()]), "<mark>", escape(match[0]), "</mark>"]
        at = match.end()
    return f"{'… ' if begin else ''}{''.join(pieces)}{escape(part[at:])}{' …' if end < len(text) else ''}"
