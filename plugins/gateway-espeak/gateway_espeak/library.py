"""libespeak-ng by ctypes: its voices, and a text as 16-bit samples while they are made.

Sharp edge: the library is one per process and not safe for threads, so this is for a process of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import espeakng_loader

BUFFER = 100  # milliseconds of audio per call of the callback

# From espeak-ng's speak_lib.h.
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_RATE = 1
_BY_CHARACTER = 1
_UTF8 = 1


class _Voice(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),  # a priority, a text, a zero, and so on to a zero
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    ]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_Voices = ctypes.POINTER(ctypes.POINTER(_Voice))


class Library:
    """The library, ready to speak; OSError when there is none."""

    def __init__(self, path: str = "") -> None:
        # A library of the system's finds its own voices; the wheel's has to be told.
        folder = None if path else espeakng_loader.get_data_path().encode()
        self._lib = ctypes.CDLL(path or espeakng_loader.get_library_path())
        self.rate = self._lib.espeak_Initialize(_SYNCHRONOUS, BUFFER, folder, _DO_NOT_EXIT)
        if self.rate <= 0:
            raise OSError("libespeak-ng does not start; are its voices installed?")
        self._lib.espeak_ListVoices.restype = _Voices
        self._lib.espeak_Info.restype = ctypes.c_char_p
        place = ctypes.c_char_p()
        self._lib.espeak_Info(ctypes.byref(place))
        self._folder = Path((place.value or b"").decode())
        self._take: Callable[[bytes], None] | None = None
        self._error: BaseException | None = None
        self._callback = _Callback(self._called)  # kept, or the library would call what is gone
        self._lib.espeak_SetSynthCallback(self._callback)

    def voices(self) -> dict[str, str]:
        """Languages and names in lower case, and the identifier that chooses each.

        Only the identifier will do: `en-gb` and `fr-fr`, though listed, choose nothing. Languages without a dictionary
        are silent, so they are left out.
        """
        found: dict[str, str] = {}
        for name, language, identifier in self._listed(None):
            dictionary = f"{identifier.rpartition('/')[2].partition('-')[0]}_dict"
            if (self._folder / dictionary).exists():
                found |= {name.strip().lower(): identifier, language.lower(): identifier}
        return found

    def variants(self) -> dict[str, str]:
        """What may follow a `+`: names of files and of voices in lower case, and the name of the file."""
        wanted = ctypes.create_string_buffer(b"variant")
        spec = _Voice(languages=ctypes.cast(wanted, ctypes.c_void_p))
        found: dict[str, str] = {}
        for name, _, identifier in self._listed(ctypes.byref(spec)):
            file = identifier.rpartition("/")[2]
            found |= {name.lower(): file, file.lower(): file}
        return found

    def speak(self, text: str, *, voice: str, rate: int, take: Callable[[bytes], None]) -> None:
        """Say it, handing the audio to `take` as it is made; what `take` raises ends it and is raised."""
        if self._lib.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ValueError("no such voice")
        self._lib.espeak_SetParameter(_RATE, rate, 0)
        said = text.replace("\0", " ").encode(errors="replace")
        self._take, self._error = take, None
        status = self._lib.espeak_Synth(said, len(said) + 1, 0, _BY_CHARACTER, 0, _UTF8, None, None)
        if self._error is not None:
            raise self._error
        if status != 0:
            raise OSError(f"libespeak-ng gave up with status {status}")

    def _listed(self, spec: object) -> Iterator[tuple[str, str, str]]:
        listed = self._lib.espeak_ListVoices(spec)
        for voice in iter(listed):
            if not voice:
                return
            entry = voice.contents
            language = ctypes.string_at(entry.languages + 1).decode()
            yield entry.name.decode(), language, entry.identifier.decode()

    def _called(self, samples: int | None, count: int, _events: int) -> int:
        """The library's callback; a one stops it. An exception would only be printed, so it is carried past it."""
        if not samples or not count or self._take is None:
            return 0
        try:
            self._take(ctypes.string_at(samples, count * 2))
        except BaseException as error:  # whatever it is, `speak` raises it again
            self._error = error
            return 1
        return 0
