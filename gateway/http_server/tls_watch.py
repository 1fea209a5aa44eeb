"""The certificate of the ports: read at the start, and again when a file of it has changed.

A pair that cannot serve is kept out: the one in force stays, and the log and `gateway_tls_renewal_refused` say so.
Every `LOOK_EVERY` seconds each file's identity is compared, as of files with secrets: a renewal writes anew, renames,
or swaps a link. A refused pair is tried again at each look, because it may become good while its files stay as they
are: another mode or owner, a date that has come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from gateway.config.secret_watcher import LOOK_EVERY, Stamp, stamp_of
from gateway.config.tls_files import TlsFiles
from gateway.http_server.tls_pair import CERT, TlsPair, TlsPairs, TlsProblem, new_own_client, read_pairs
from gateway.log import gateway_log

Stamps = dict[Path, Stamp]


class TlsWatch:
    """Of one gateway. `renewed` gets the pairs that replace those in force.

    `report` gets the end of the certificate in force, as Unix time, and whether another one was refused since.
    """

    def __init__(self, report: Callable[[float, bool], None], renewed: Callable[[TlsPairs], None]) -> None:
        self._report = report
        self._renewed = renewed
        self._files: TlsFiles | None = None
        self._pairs: TlsPairs | None = None
        self._own_client = (b"", b"")
        self._tried: Stamps = {}
        self._seen: Stamps = {}
        self._refusal = ""  # why the files as they are now are not used; empty if they are

    @property
    def api(self) -> TlsPair | None:
        """What a worker serves; None without TLS."""
        return self._pairs.api if self._pairs is not None else None

    @property
    def console(self) -> TlsPair | None:
        """What the console serves; None without TLS."""
        return self._pairs.console if self._pairs is not None else None

    async def begin(self, files: TlsFiles | None) -> None:
        """Read the files, if there is TLS; TlsProblem."""
        if files is None:
            return
        self._files = files
        if files.client_ca is not None:
            self._own_client = new_own_client()
        self._tried = self._seen = _stamps(files)  # before they are read
        pairs = await asyncio.to_thread(read_pairs, files, self._own_client)
        self._use(pairs)
        if warning := pairs.warning(files, time.time()):
            gateway_log.warning("server.tls_cert: %s", warning)

    async def run(self) -> None:
        """Look until cancelled."""
        while self._files is not None:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        """Use the pair if a file has changed. A file that is gone may be about to be replaced, until the next look."""
        files = self._files
        assert files is not None
        before, self._seen = self._seen, _stamps(files)
        has_changed = self._seen != self._tried
        if has_changed and () in self._seen.values() and self._seen != before:
            return
        if not has_changed and not self._refusal:
            return
        self._tried = self._seen
        try:
            pairs = await asyncio.to_thread(read_pairs, files, self._own_client)
            if problem := pairs.problem(files, time.time()):
                raise TlsProblem(CERT, problem)
        except Exception as error:
            # The edge of a renewal: whatever the files hold, the gateway goes on with the pair in force.
            self._refuse(str(error) if isinstance(error, TlsProblem) else type(error).__name__, again=not has_changed)
            return
        if pairs != self._pairs:
            self._renewed(pairs)
            gateway_log.info("%s is renewed: it expires in %d days", files.cert, (pairs.ends - time.time()) // 86_400)
        self._use(pairs)

    def _refuse(self, reason: str, *, again: bool) -> None:
        """Say that the files are not used; not `again` for the same reason."""
        is_said, self._refusal = again and reason == self._refusal, reason
        if self._pairs is not None:
            self._report(self._pairs.ends, True)
        if not is_said:
            gateway_log.error("the new certificate is not used, the one in force stays: %s", reason)

    def _use(self, pairs: TlsPairs) -> None:
        self._pairs, self._refusal = pairs, ""
        self._report(pairs.ends, False)


def _stamps(files: TlsFiles) -> Stamps:
    return {path: stamp_of(path) for _, path in files.named()}
