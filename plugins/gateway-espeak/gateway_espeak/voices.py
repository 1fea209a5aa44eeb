"""The voices that callers name, as eSpeak's own.

OpenAI's built-in names are voices of one language each, the configured one unless the table says otherwise. Besides
them a language (`de`), a name (`English (America)`), and either with a variant after a `+` (`en-us+f3`) are voices.
Sharp edge: libespeak-ng takes an unknown variant for none and a path for a voice, so it is only told what it listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .frames import Hello

#: OpenAI's names: a variant, after a language where it matters.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "alloy": "",
        "ash": "+m3",
        "ballad": "en-gb+m1",
        "cedar": "+m7",
        "coral": "+f2",
        "echo": "+m2",
        "fable": "en-gb",
        "marin": "+f4",
        "nova": "+f3",
        "onyx": "+m8",
        "sage": "+f5",
        "shimmer": "+f1",
        "verse": "+m4",
    }
)


class Voices:
    """What an engine can speak with."""

    def __init__(self, hello: Hello, language: str) -> None:
        self._hello = hello
        self._language = language

    def find(self, name: str) -> str | None:
        """What eSpeak calls a voice; None when there is none."""
        wanted = BUILT_IN.get(name.lower(), name.lower())
        language, plus, variant = wanted.partition("+")
        voice = self._hello.voices.get(language or self._language)
        if not plus:
            return voice
        kind = self._hello.variants.get(variant)
        return f"{voice}+{kind}" if voice and kind else None
