"""Tokens of an image in a prompt, as the upstream model bills it (docs/prices.md, "Estimates").

`media_rules(names)` gives the rules for upstream models with these names; `MediaRules.image(size, detail)` is the
largest number of tokens that one of them bills. The rules and factors are published by the vendors; a name that no
pattern knows gets the most expensive of the usual rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

Size = tuple[int, int]  # width and height in pixels

#: Addresses of videos and files that Gemini fetches: YouTube and the Files API.
_HOSTED = re.compile(r"https://[^/?#]{0,256}?(?:youtube\.com|youtu\.be|generativelanguage\.googleapis\.com)", re.I)


class ImageRule(Protocol):
    """How a family of models bills an image."""

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """Tokens of an image; an image of unknown size counts as a large one."""


class Tiles(Struct, frozen=True):
    """A number for the image, and one for each tile of 512 by 512 pixels."""

    base: int
    tile: int

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """Scaled to at most 2048 by 2048 and a short side of at most 768, then tiled; low detail is the base alone."""
        if detail == "low":
            return self.base
        return self.base + self.tile * (UNKNOWN_TILES if size is None else _tiles(*size))


class Patches(Struct, frozen=True):
    """A factor for each patch of 32 by 32 pixels. The detail is ignored, except where `original` has more patches."""

    most: int
    factor: float
    original: int = 0

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """Scaled down to at most `most` patches."""
        most = self.original or self.most if detail == "original" else self.most
        patches = most if size is None else min(most, _cells(size, 32))
        return -int(-patches * self.factor // 1)


class Area(Struct, frozen=True):
    """A token for 750 pixels, up to a maximum. The detail is ignored."""

    most: int

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """Width times height, divided."""
        return self.most if size is None else min(self.most, -(-size[0] * size[1] // 750))


class Crops(Struct, frozen=True):
    """258 for each tile of 768 by 768 pixels. The detail is ignored."""

    most: int

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """Tiles of the image at its own size."""
        return 258 * (UNKNOWN_TILES if size is None else min(self.most, _cells(size, 768)))


class Flat(Struct, frozen=True):
    """The same for every image."""

    each: int

    def tokens(self, size: Size | None, detail: str | None) -> int:
        """The number itself."""
        return self.each


class MediaRules(Struct, frozen=True):
    """The rules of all upstreams that may serve a model."""

    images: tuple[ImageRule, ...]
    audio: int  # tokens for a second of audio
    hosted: int = 0  # tokens of a video or file that the upstream fetches; 0: it fetches images alone

    def fetched(self, url: str, detail: str | None) -> int:
        """Tokens of what the upstream fetches from `url`; nothing is known of it but its address."""
        return self.hosted if self.hosted and _HOSTED.match(url) else self.image(None, detail)

    def image(self, size: Size | None, detail: str | None) -> int:
        """Tokens of an image at the upstream that bills the most."""
        rules = self.images
        if len(rules) == 1:
            return rules[0].tokens(size, detail)
        return max(rule.tokens(size, detail) for rule in rules)


UNKNOWN_TILES = 6  # of an image of unknown size
AUDIO, GEMINI_AUDIO = 10, 32
#: A quarter of Gemini's context window: a video of 14 minutes. A count of four times the estimate is believed, so that
#: of a whole window is.
GEMINI_HOSTED = 262_144

#: Rules by a pattern that is searched in the upstream's name of a model; the first that is found applies.
PATTERNS: tuple[tuple[re.Pattern[str], ImageRule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"gpt-4o-mini", Tiles(2_833, 5_667)),
        (r"gpt-(4\.1|5)-mini", Patches(1_536, 1.62)),
        (r"gpt-(4\.1|5)-nano", Patches(1_536, 2.46)),
        (r"\bo4-mini|codex-mini", Patches(1_536, 1.72)),
        (r"gpt-5\.\d+-mini", Patches(2_500, 1.62)),
        (r"gpt-5\.\d+-nano", Patches(2_500, 2.46)),
        (r"gpt-5\.[23]", Patches(1_536, 1.2)),
        (r"gpt-(5\.[4-9]|[6-9])", Patches(2_500, 1.2, original=10_000)),
        (r"gpt-5", Tiles(70, 140)),
        (r"\bo[13]\b", Tiles(75, 150)),
        (r"gpt-4", Tiles(85, 170)),
        (r"chatgpt-4o", Tiles(85, 170)),
        (r"claude-([a-z]+-)?(4[-.][7-9](?!\d)|[5-9])", Area(4_800)),
        (r"claude", Area(1_600)),
        (r"gemini-[3-9]", Flat(1_120)),
        (r"gemini", Crops(16)),
    )
)
#: Rules for models with names that no pattern knows.
USUAL: tuple[ImageRule, ...] = (Tiles(85, 170), Patches(1_536, 1.0), Area(1_600), Crops(16))


def image_rule(name: str) -> ImageRule | None:
    """The rule for an upstream model of this name, which may have a prefix or a date; None if no pattern knows it."""
    lowered = name.lower()
    return next((rule for pattern, rule in PATTERNS if pattern.search(lowered)), None)


def media_rules(names: Iterable[str]) -> MediaRules:
    """The rules for all these upstream models."""
    images: dict[ImageRule, None] = {}
    audio, hosted = AUDIO, 0
    for name in names:
        rule = image_rule(name)
        images.update(dict.fromkeys(USUAL if rule is None else (rule,)))
        if "gemini" in name.lower():
            audio, hosted = GEMINI_AUDIO, GEMINI_HOSTED
    return MediaRules(tuple(images or USUAL), audio, hosted)


def _tiles(width: int, height: int) -> int:
    longest = max(width, height)
    if longest > 2048:
        width, height = _scaled(width, 2048, longest), _scaled(height, 2048, longest)
    shortest = min(width, height)
    if shortest > 768:
        width, height = _scaled(width, 768, shortest), _scaled(height, 768, shortest)
    return _cells((width, height), 512)


def _scaled(side: int, to: int, of: int) -> int:
    return max(1, side * to // of)


def _cells(size: Size, side: int) -> int:
    return -(-size[0] // side) * -(-size[1] // side)
