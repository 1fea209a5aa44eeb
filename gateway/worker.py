"""One serving process: `python -m gateway.worker SPEC`, started and watched by the supervisor.

It builds a `Gateway`, serves on the listening socket it inherited, and reports its counts. It drains and exits on
SIGTERM, and just so when the channel to its supervisor closes: a worker never outlives the process that would restart
its peers.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from pathlib import Path

import msgspec

from gateway import log
from gateway.channel import Channel, Message
from gateway.log import gateway_log
from gateway.metrics import encode_delta
from gateway.server import Gateway
from gateway.settings import Settings, SettingsFault, demo_settings, load
from gateway.store import Store
from gateway.transport.http_server import HTTPServer, ServerLimits

REPORT_EVERY = 1.0  # seconds between reports of counts


class WorkerSpec(msgspec.Struct):
    """What a worker is told on its command line."""

    number: int
    listen_fd: int
    channel_fd: int
    store_url: str
    config_path: str | None
    demo: bool
    data_dir: str


class Worker:
    """The life of one worker."""

    def __init__(self, spec: WorkerSpec, settings: Settings) -> None:
        self.spec = spec
        self.settings = settings
        self.draining = asyncio.Event()
        self.gateway: Gateway | None = None
        self.channel: Channel | None = None
        self._pepper: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until told to stop."""
        self.channel = await Channel.open(
            socket.socket(fileno=self.spec.channel_fd), self._receive, self._supervisor_gone
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.draining.set)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C reaches the whole group; the supervisor decides
        store = await Store.open(self.spec.store_url, timeout=self.settings.store.timeout, required=False)
        self.gateway = await Gateway.build(self.settings, store, pepper=await self._pepper)
        server = HTTPServer(self.gateway.application(), server_limits(self.settings))
        await server.start(socket.socket(fileno=self.spec.listen_fd))
        # What exists now lives as long as the process: −46 µs a request when the collector never walks it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        self.channel.send("ready")
        reporting = asyncio.create_task(self._report_forever())
        await self.draining.wait()
        await self._drain(server)
        reporting.cancel()
        self._report()
        self.channel.close()

    async def _drain(self, server: HTTPServer) -> None:
        server.close_listener()
        await server.drain(self.settings.server.drain_timeout)
        assert self.gateway is not None
        await self.gateway.close()

    def _receive(self, message: Message) -> None:
        if message.name == "pepper":
            self._pepper.set_result(message.payload)
        elif message.name == "reload":
            task = asyncio.ensure_future(self._reload())
            task.add_done_callback(lambda _: None)
        elif message.name == "report":
            self._report()
            if self.channel is not None:
                self.channel.send("reported")

    async def _reload(self) -> None:
        try:
            settings = settings_of(self.spec)
        except SettingsFault as fault:
            gateway_log.error("reload refused, the old configuration stays: %s", fault)
            return
        assert self.gateway is not None
        await self.gateway.reload(settings)

    def _supervisor_gone(self) -> None:
        if not self.draining.is_set():
            gateway_log.error("the supervisor is gone; draining")
            self.draining.set()

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._report()

    def _report(self) -> None:
        if self.gateway is not None and self.channel is not None:
            delta = self.gateway.metrics.drain()
            if delta is not None:
                self.channel.send("counts", encode_delta(delta))


def settings_of(spec: WorkerSpec) -> Settings:
    """The settings a worker serves by, read anew."""
    if spec.config_path is None:
        return demo_settings(spec.data_dir)
    return load(Path(spec.config_path), demo=spec.demo)


def server_limits(settings: Settings) -> ServerLimits:
    """The transport's limits from the settings."""
    server = settings.server
    return ServerLimits(
        max_header_bytes=server.max_header_bytes,
        max_body_bytes=server.max_json_body,
        header_timeout=server.header_timeout,
        idle_timeout=server.idle_timeout,
        body_idle_timeout=server.body_timeout,
        write_timeout=server.write_timeout,
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed (−15 % CPU per request), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def main(argv: list[str]) -> int:
    """Entry of the worker process."""
    spec = msgspec.json.decode(argv[0], type=WorkerSpec)
    settings = settings_of(spec)
    log.configure(settings.log.level)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(spec, settings))
    return 0


async def _serve(spec: WorkerSpec, settings: Settings) -> None:
    await Worker(spec, settings).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
