"""Voices: the names that callers know, and Gemini's own.

A name of OpenAI's or of the operator's table becomes a Gemini voice; any other name is taken for one of Gemini's, whose
list grows without us. Sharp edge: a voice that Gemini does not know is refused by Gemini, after the call was held.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.errors import UnsupportedValue

#: OpenAI's voices by the Gemini voice that comes nearest.
OPENAI_VOICES: Mapping[str, str] = {
    "alloy": "Kore",
    "ash": "Charon",
    "ballad": "Enceladus",
    "cedar": "Orus",
    "coral": "Aoede",
    "echo": "Puck",
    "fable": "Fenrir",
    "marin": "Leda",
    "nova": "Zephyr",
    "onyx": "Algenib",
    "sage": "Sulafat",
    "shimmer": "Despina",
    "verse": "Iapetus",
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def speech_config(voice: str, voices: Mapping[str, str], param: str) -> dict[str, Any]:
    """Gemini's `speechConfig` for a voice; `voices` is the operator's table."""
    name = voices.get(voice) or OPENAI_VOICES.get(voice) or voice
    if not _NAME.fullmatch(name):
        raise UnsupportedValue("There is no such voice.", param=param)
    return {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}
