"""The embedded server's folder, `data_dir/store`, and the files beside its data.

`owner.lock` is held by the gateway that owns the server, `server.lock` by the server itself, `users.lock` (shared) by
commands that use another process's server. `version` names the server that wrote the data, `socket` the path of its
socket: beside the data, or in a short private folder if the path is longer than the 108 bytes of a unix socket.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.store.embedded.file_lock import FileLock
from gateway.store.embedded.version import ServerVersion
from gateway.store.fault import StoreSetupError

LONGEST_SOCKET = 100  # bytes; Linux takes 107 and macOS 103
LOG_LIMIT = 1 << 20  # bytes; a larger log is renamed at the next start


class ServerHome:
    """Paths, locks and notes of one data folder."""

    def __init__(self, data_dir: str | Path) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.root = self.data_dir / "store"
        self.log = self.root / "server.log"
        self.pid_file = self.root / "server.pid"
        self.owner = FileLock(self.root / "owner.lock")
        self.server = FileLock(self.root / "server.lock")
        self.users = FileLock(self.root / "users.lock")
        self._version = self.root / "version"
        self._socket = self.root / "socket"

    def prepare(self) -> None:
        """Create the folder, readable by this user only."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
            self.root.chmod(0o700)
            if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
                self.log.replace(self.log.with_suffix(".log.1"))
        except OSError as error:
            raise StoreSetupError(f"store.data_dir {self.data_dir}: {error.strerror}") from None

    def written_by(self) -> ServerVersion | None:
        """The server that wrote the data in the folder."""
        return ServerVersion.parse(self._version.read_text()) if self._version.exists() else None

    def write_version(self, version: ServerVersion) -> None:
        """Write the server's version before the server starts to write."""
        write_note(self._version, f"{version}\n")

    def choose_socket(self) -> Path:
        """Choose the socket's path, store it, and remove the socket of a dead server."""
        path = socket_path(self.data_dir, self.root, "valkey.sock")
        write_note(self._socket, f"{path}\n")
        path.unlink(missing_ok=True)
        self.pid_file.unlink(missing_ok=True)
        return path

    def recorded_socket(self) -> Path | None:
        """The socket of the last server."""
        return Path(self._socket.read_text().strip()) if self._socket.exists() else None

    def sync(self) -> None:
        """Sync the server's append-only file at once; the server itself syncs it once a second."""
        for path in self.root.glob("appendonlydir/*.aof"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # replaced by a rewritten one, which the server has synced
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def server_pid(self) -> int | None:
        """The process that the server's own file names, if it still runs."""
        try:
            pid = int(self.pid_file.read_text())
            os.kill(pid, 0)
            # If there is /proc, it shows whether another process has this process id now.
            cwd = Path(f"/proc/{pid}/cwd")
            return pid if not cwd.exists() or cwd.samefile(self.root) else None
        except (OSError, ValueError):
            return None

    def free_space(self) -> str:
        """How much can still be written, as a part of a message."""
        try:
            free = shutil.disk_usage(self.data_dir).free
        except OSError:
            return f"the file system of {self.data_dir} cannot be read"
        return f"free space of the file system of {self.data_dir}: {free / 2**20:.1f} MiB"

    @contextmanager
    def faults_explained(self) -> Iterator[None]:
        """Turns an OSError of files in the folder into a StoreSetupError that names the reason and the free space."""
        try:
            yield
        except OSError as error:
            raise StoreSetupError(f"{self.data_dir}: {error.strerror or error}; {self.free_space()}") from None

    def last_words(self) -> str:
        """The last line of the server's log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return "no log"
        return next((line for line in reversed(lines) if line.strip()), "an empty log")


def socket_path(data_dir: Path, folder: Path, name: str) -> Path:
    """Where a unix socket in a folder of `data_dir` can be: there, or in a short private folder."""
    path = folder / name
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    short = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"gateway-{os.geteuid()}-{digest}"
    short.mkdir(mode=0o700, exist_ok=True)
    found = short.lstat()
    # The parent may be a shared /tmp: another user's folder or link with this name would get our socket.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreSetupError(f"{short} is not a private folder of this user; remove it")
    if len(os.fsencode(short)) > LONGEST_SOCKET - 12:
        raise StoreSetupError(f"store.data_dir {data_dir}: the path is too long for a unix socket, so is {short}")
    return short / name


def ask(path: Path | None, command: str, timeout: float = 1.0) -> str:
    """Send one inline command to the server at a socket; the first line of its reply, empty if there is none."""
    if path is None:
        return ""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(timeout)
        try:
            peer.connect(str(path))
            peer.sendall(f"{command}\r\n".encode())
            return peer.recv(4096).decode(errors="replace").partition("\r\n")[0]
        except OSError:
            return ""


def write_note(path: Path, text: str) -> None:
    """Replace a small file that only this user may read."""
    if path.exists() and path.read_text() == text:
        return
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.replace(path)
