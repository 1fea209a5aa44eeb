"""Loaded by every Python that has this folder on PYTHONPATH: it counts in the process, and obeys commands on a socket.

BENCH_PROBE names a folder; a process with the id PID listens there on the Unix socket `PID`. A command is one line, an
answer one line of JSON. BENCH_PROBE_EXTENSION, where it is set, is the library built from callgrind.c; without it the
process notes which functions run.

| command | does |
|---|---|
| `on` | begins to note the functions that run |
| `off` | ends that; answers with their files and names |
| `begin`, `zero`, `dump NAME` | callgrind: begin to count, count from 0, write what was counted |
| `stages FILE` | callgrind: enter a C function of each stage by the table in FILE, see callgrind.c |
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
from typing import Any

Commands = dict[str, Callable[[str], Any]]


class Functions:
    """Notes the code that runs in the loop's thread while `noting`; generators and coroutines each time they go on.

    Other threads are left out: on a slow machine one that wakes up by a timer ran in each of 15 chats, 7 functions.
    """

    def __init__(self) -> None:
        self.noting = False
        self.seen: set[CodeType] = set()

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if self.noting and event == "call":
            self.seen.add(frame.f_code)

    def install(self) -> None:
        sys.setprofile(self.profile)

    def on(self, _: str) -> None:
        self.seen.clear()
        self.noting = True

    def off(self, _: str) -> list[tuple[str, str]]:
        self.noting = False
        return sorted((code.co_filename, code.co_qualname) for code in self.seen.copy())


class Stages:
    """Gives each code object its stage: the first line of the table whose two patterns match its file and its name."""

    def __init__(self, table: list[tuple[str, str, int]]) -> None:
        self.lines = [(re.compile(file), re.compile(name), stage) for file, name, stage in table]

    def of(self, file: str, name: str) -> int:
        for file_pattern, name_pattern, stage in self.lines:
            if file_pattern.search(file) and name_pattern.search(name):
                return stage
        return 0


def use_stages(counter: ModuleType, file: str) -> None:
    table = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    counter.stages(Stages(table).of)


def listen(commands: Commands, path: str) -> None:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(1)
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile("rw", encoding="utf-8") as file:
            for line in file:
                name, _, argument = line.strip().partition(" ")
                file.write(json.dumps(commands[name](argument)) + "\n")
                file.flush()


def _noting() -> Commands:
    functions = Functions()
    functions.install()
    return {"on": functions.on, "off": functions.off}


def _counting(library: str) -> Commands:
    # Here, not at the top: they are only needed for this, and every process of the gateway loads this file.
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    from importlib.util import module_from_spec

    loader = ExtensionFileLoader("bench_callgrind", library)
    counter = module_from_spec(ModuleSpec("bench_callgrind", loader, origin=library))
    return {
        "begin": lambda _: counter.begin(),
        "zero": lambda _: counter.zero(),
        "dump": counter.dump,
        "stages": lambda file: use_stages(counter, file),
    }


def main() -> None:
    library = os.environ.get("BENCH_PROBE_EXTENSION")
    commands = _counting(library) if library else _noting()
    path = f"{os.environ['BENCH_PROBE']}/{os.getpid()}"
    threading.Thread(target=listen, args=(commands, path), daemon=True).start()


if "BENCH_PROBE" in os.environ:
    main()
