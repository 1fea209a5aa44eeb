"""Files that other users of the machine may read or change, although they hold secrets or decide what is charged."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.config.secret_references import references
from gateway.config.settings import Settings
from gateway.config.toml_reader import dotted

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_READ = stat.S_IROTH
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def wide_modes(settings: Settings) -> list[str]:
    """A warning for each file or folder with a mode that is too wide."""
    return list(_found(settings))


def _found(settings: Settings) -> Iterator[str]:
    for file in filter(None, (settings.file, *(settings.origins.files if settings.origins is not None else ()))):
        if (mode := _mode(Path(file))) & OTHERS_WRITE:
            yield f"{file}: other users can change it (mode {mode:04o}); chmod go-w it"
    for key, secret in references(settings):
        path = secret.file
        mode = 0 if path is None else _mode(path)
        if mode & (OTHERS_READ | OTHERS_WRITE):
            yield f"{dotted(key)}: other users can read or change {path} (mode {mode:04o}); chmod 600 it"
    if (files := settings.tls_files) is not None and (mode := _mode(files.key)) & (OTHERS_READ | OTHERS_WRITE):
        yield f"server.tls_key: other users can read or change {files.key} (mode {mode:04o}); chmod 600 it"
    if not settings.store.url and (mode := _mode(settings.data_dir)) & OTHERS:
        yield f"store.data_dir: other users can enter {settings.data_dir} (mode {mode:04o}); chmod 700 it"


def _mode(path: Path) -> int:
    """The permission bits; 0 where there is nothing to look at."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
