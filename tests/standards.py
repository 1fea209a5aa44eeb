"""`python -m tests.standards`: what newer packages change in the classes by which answers are read.

It installs the newest release of each package of the extra `conformance` into a temporary folder, and compares all
classes that the reading uses with those that are installed: which members came, went, or have another type. With
`--write` it also puts the newest versions into setup.py; docs/dialects.md has them after `python -m
tests.dialects.matrix`. Exit status: 0 without a change, 1 with one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "setup.py"
PINS = re.compile(r"^CONFORMANCE = \[(.*)\]$", re.MULTILINE)
#: The members of each class, by its name: the text of each type, with "required" before it.
Classes = Mapping[str, Mapping[str, str]]


def packages() -> dict[str, str]:
    """The version of each package that setup.py pins."""
    [listed] = PINS.findall(SETUP.read_text(encoding="utf-8"))
    return dict(one.split("==") for one in json.loads(f"[{listed}]"))


def classes_in(roots: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The members of these classes and of all that they lead to; `roots` are classes and unions, by a name."""
    found: dict[str, dict[str, str]] = {}
    pending = list(roots.values())
    while pending:
        kind = pending.pop()
        for one in _models(kind):
            name = f"{one.__module__}.{one.__qualname__}"
            if name not in found:
                fields = one.model_fields
                found[name] = {
                    field.alias or member: f"{'required ' if field.is_required() else ''}{_text(field.annotation)}"
                    for member, field in fields.items()
                }
                pending += [field.annotation for field in fields.values()]
    return found


def changes(old: Classes, new: Classes) -> list[str]:
    """A line for each class and member that came, went or changed."""
    lines = [f"+ {name}" for name in sorted(new.keys() - old.keys())]
    lines += [f"- {name}" for name in sorted(old.keys() - new.keys())]
    for name in sorted(old.keys() & new.keys()):
        before, after = old[name], new[name]
        lines += [f"+ {name}.{one}: {after[one]}" for one in sorted(after.keys() - before.keys())]
        lines += [f"- {name}.{one}: {before[one]}" for one in sorted(before.keys() - after.keys())]
        same = sorted(before.keys() & after.keys())
        lines += [f"  {name}.{one}: {before[one]} → {after[one]}" for one in same if before[one] != after[one]]
    return lines


def _models(kind: Any) -> Iterator[Any]:
    """The classes with members in a type."""
    if isinstance(kind, type) and hasattr(kind, "model_fields"):
        yield kind
    for part in get_args(kind):
        yield from _models(part)


def _text(kind: Any) -> str:
    """A type as a text that has no addresses, and no module, which may move."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _text(parts[0])
    if origin in (Union, types.UnionType):
        return " | ".join(sorted(_text(part) for part in parts))
    if parts:
        return f"{getattr(origin, '__name__', origin)}[{', '.join(map(_text, parts))}]"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(sorted(repr(one.value) for one in kind))
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def installed_classes() -> dict[str, dict[str, str]]:
    """Those of the packages of this process."""
    from gateway.testing.standards.classes import all_classes

    return classes_in(all_classes())


def newest(folder: Path) -> dict[str, str]:
    """Install the newest release of each package into `folder`; the versions."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-compile", "--target", str(folder)]
    subprocess.run([*pip, *packages()], check=True, stdout=subprocess.DEVNULL)
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    return dict(zip(packages(), _run(folder, "-c", code, *packages()).split(), strict=True))


def _run(folder: Path, *arguments: str) -> str:
    """The output of Python with the packages in `folder` before all others."""
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment).stdout


def write(versions: Mapping[str, str]) -> None:
    """Pin these versions in setup.py."""
    pins = ", ".join(f'"{name}=={number}"' for name, number in sorted(versions.items()))
    text = SETUP.read_text(encoding="utf-8")
    SETUP.write_text(PINS.sub(lambda _: f"CONFORMANCE = [{pins}]", text), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print what changes."""
    parser = argparse.ArgumentParser(prog="python -m tests.standards", description=__doc__)
    parser.add_argument("--write", action="store_true", help="pin the newest versions in setup.py")
    parser.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.dump:
        print(json.dumps(installed_classes()))
        return 0
    with tempfile.TemporaryDirectory() as name:
        versions = newest(Path(name))
        lines = changes(installed_classes(), json.loads(_run(Path(name), "-m", "tests.standards", "--dump")))
    for package, number in versions.items():
        print(f"{package} {version(package)} → {number}")
    print(*lines or ["no class has changed"], sep="\n")
    if options.write:
        write(versions)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
