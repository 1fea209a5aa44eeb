"""Further files of a configuration: `include = ["conf.d/*.toml"]` in the main one.

They are merged in the order of the list, those of a pattern by name. Tables are merged; what two files set is a
problem that names both. A provider, a model, a group or an identity provider stands in one file as a whole. Sharp
edge: relative paths in all files start at the folder of the main one.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.config.origins import Origins
from gateway.config.toml_reader import Key, SettingsError, SettingsProblem, dotted, parse_toml, read_file

INCLUDE: Final = "include"
MOST_FILES: Final = 256
MOST_BYTES: Final = 16 * 2**20  # of all included files
#: Sections of tables by name, each of which stands in one file.
NAMED: Final = frozenset({"providers", "models", "groups", "oidc"})
_PATTERN: Final = frozenset("*?[")


class Part(Struct, frozen=True):
    """An included file."""

    file: str
    raw: bytes


def read_parts(path: Path, raw: bytes) -> tuple[Part, ...]:
    """What the main file, with these bytes, includes; SettingsError."""
    if INCLUDE.encode() not in raw and b"\\" not in raw:  # the key may be written with escapes
        return ()  # a large file is not parsed twice for it
    main = str(path)
    return tuple(_bounded(main, _paths(path, _patterns(main, parse_toml(raw, file=main)))))


def merge(main: str, raw: bytes, parts: Sequence[Part]) -> tuple[dict[str, Any], Origins]:
    """The document of all files, and where its values stand; SettingsError."""
    document = parse_toml(raw, file=main)
    document.pop(INCLUDE, None)
    origins, problems = Origins(main, {(name,): main for name in document}), list[SettingsProblem]()
    for part in parts:
        origins.files.append(part.file)
        try:
            more = parse_toml(part.raw, file=part.file)
        except SettingsError as error:
            problems += error.problems
            continue
        if more.pop(INCLUDE, None) is not None:
            problems.append(SettingsProblem(part.file, INCLUDE, f"belongs into {main}: an included file includes none"))
        _merge(document, more, (), part.file, origins, problems)
    if problems:
        raise SettingsError(problems)
    return document, origins


def read_document(path: Path) -> dict[str, Any]:
    """The document of a file with all that it includes; SettingsError."""
    raw = read_file(path)
    return merge(str(path), raw, read_parts(path, raw))[0]


def _merge(
    into: dict[str, Any], more: dict[str, Any], key: Key, file: str, origins: Origins, problems: list[SettingsProblem]
) -> None:
    for name, value in more.items():
        at = (*key, name)
        before = into.get(name)
        if before is None:
            into[name] = value
            origins.places[at] = file
        elif isinstance(before, dict) and isinstance(value, dict) and (len(at) == 1 or at[0] not in NAMED):
            _merge(before, value, at, file, origins, problems)
        else:
            problems.append(SettingsProblem(file, dotted(at), f"stands in {origins.file_of(at)} too"))


def _patterns(main: str, document: dict[str, Any]) -> list[str]:
    found = document.get(INCLUDE, [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise SettingsError([SettingsProblem(main, INCLUDE, 'expected a list of files, as in ["conf.d/*.toml"]')])
    return found


def _paths(main: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Each file once. A pattern may match none; a name without one must be there, which reading it tells."""
    seen = {os.path.realpath(main)}
    for pattern in patterns:
        try:
            relative = Path(pattern).expanduser()
        except RuntimeError:
            raise SettingsError([SettingsProblem(str(main), INCLUDE, f"{pattern}: no such home folder")]) from None
        found = [str(main.parent / relative)]
        if _PATTERN & set(pattern):
            found = sorted(glob.glob(str(Path(glob.escape(str(main.parent))) / relative)))  # noqa: PTH207 - no hidden files
        for path in map(Path, found):
            try:
                real = os.path.realpath(path)  # `resolve` refuses a link to itself on some versions of Python
            except ValueError:  # a character that no path has
                raise SettingsError([SettingsProblem(str(path), "", "cannot be read: it leads nowhere")]) from None
            if real not in seen:
                seen.add(real)
                yield path


def _bounded(main: str, paths: Iterator[Path]) -> Iterator[Part]:
    left = MOST_BYTES
    for number, path in enumerate(paths, start=1):
        if number > MOST_FILES:
            raise SettingsError([SettingsProblem(main, INCLUDE, f"more than {MOST_FILES} files")])
        raw = read_file(path, most=left)
        left -= len(raw)
        yield Part(str(path), raw)
