"""Moderation by words: each category has some, and an input with one of them is flagged.

The words of an image are those of its address, such as `https://images.example/violence.png`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway import ModerationAnswer, ModerationRequest, ModerationResult
from gateway.schemas.scoring.moderation import CATEGORIES, ModerationImage, Part, text_of

WORDS: Mapping[str, frozenset[str]] = {
    "harassment": frozenset({"harassment", "loser", "threaten"}),
    "harassment/threatening": frozenset({"threaten"}),
    "hate": frozenset({"hate"}),
    "illicit": frozenset({"illicit", "shoplift", "bomb"}),
    "illicit/violent": frozenset({"bomb"}),
    "self-harm": frozenset({"suicide"}),
    "sexual": frozenset({"sexual"}),
    "violence": frozenset({"violence", "kill", "blood"}),
    "violence/graphic": frozenset({"blood"}),
}
#: Categories in which images are judged, as at OpenAI.
OF_IMAGES = ("self-harm", "sexual", "violence")
FOUND, NOT_FOUND = 0.9, 0.01

_WORD = re.compile(r"[a-z]+")


def moderation_answer(request: ModerationRequest) -> ModerationAnswer:
    """A result for each input."""
    return ModerationAnswer([_result(parts) for parts in request.inputs])


def _result(parts: list[str | Part]) -> ModerationResult:
    texts, images = frozenset[str](), frozenset[str]()
    for part in parts:
        if isinstance(part, ModerationImage):
            address = part.image_url.url
            images |= frozenset(() if address.startswith("data:") else _WORD.findall(address.casefold()))
        else:
            texts |= frozenset(_WORD.findall(text_of(part).casefold()))
    has_text = any(not isinstance(part, ModerationImage) for part in parts)
    has_image = any(isinstance(part, ModerationImage) for part in parts)
    flags, kinds = {}, {}
    for name in CATEGORIES:
        of_images = has_image and name.partition("/")[0] in OF_IMAGES and name != "sexual/minors"
        words = texts | images if of_images else texts
        flags[name] = not words.isdisjoint(WORDS.get(name, ()))
        kinds[name] = [*(["text"] if has_text else []), *(["image"] if of_images else [])]
    scores = {name: FOUND if flag else NOT_FOUND for name, flag in flags.items()}
    return ModerationResult(any(flags.values()), flags, scores, kinds)
