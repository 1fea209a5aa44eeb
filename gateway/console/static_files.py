"""The stylesheets, scripts and pictures of the console, read once. Their addresses contain the hash of their content.

So a browser may keep a file for ever, and an upgraded gateway gives every changed file a new address.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct
from tornado.web import RequestHandler

from gateway.manual.files import pictures

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FOR_EVER = "public, max-age=31536000, immutable"


class StaticFile(Struct, frozen=True):
    """One file."""

    content: bytes
    packed: bytes  # with gzip
    hash: str
    type: str


class StaticFiles:
    """All files by their names, such as `vendor/htmx/htmx.min.js`; `others` are outside the folder."""

    def __init__(self, folder: Path = FOLDER, others: Mapping[str, Path] | None = None) -> None:
        self._files: dict[str, StaticFile] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in TYPES:
                self._files[path.relative_to(folder).as_posix()] = _read(path)
        for name, path in (others or {}).items():
            self._files[name] = _read(path)

    def path(self, name: str) -> str:
        """The path of a file, without `root_path`; KeyError for an unknown one."""
        return f"/static/{self._files[name].hash}/{name}"

    def find(self, name: str) -> StaticFile | None:
        """The file of a name."""
        return self._files.get(name)


@cache
def own_files() -> StaticFiles:
    """The console's own files, and the drawings of the documentation; they are compressed once in a process."""
    return StaticFiles(others=pictures())


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return StaticFile(content, gzip.compress(content, 9, mtime=0), digest, TYPES[path.suffix])


class StaticHandler(RequestHandler):
    """`/static/HASH/NAME`. An address with an old hash gets the current file, which the browser may not keep."""

    def initialize(self, files: StaticFiles) -> None:
        self._files = files

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")

    def compute_etag(self) -> None:
        """None: `get` sets it."""

    def get(self, digest: str, name: str) -> None:
        file = self._files.find(name)
        if file is None:
            self.set_status(404)
            return
        self.set_header("Content-Type", file.type)
        self.set_header("Cache-Control", FOR_EVER if digest == file.hash else "no-cache")
        self.set_header("Vary", "Accept-Encoding")
        packs = "gzip" in self.request.headers.get("Accept-Encoding", "")
        self.set_header("ETag", f'"{file.hash}-gz"' if packs else f'"{file.hash}"')
        if self.check_etag_header():
            self.set_status(304)
            return
        if packs:
            self.set_header("Content-Encoding", "gzip")
        self.write(file.packed if packs else file.content)

    head = get

    def write_error(self, status_code: int, **kwargs: object) -> None:
        """Without a body."""
