"""Google's token endpoint for tests, and a service account that asks it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway import Secret


@contextlib.asynccontextmanager
async def token_server(answer: Callable[[dict[str, str]], web.Response]) -> AsyncIterator[str]:
    """Google's token endpoint."""

    async def handle(request: web.Request) -> web.Response:
        return answer({name: str(value) for name, value in (await request.post()).items()})

    app = web.Application()
    app.router.add_post("/token", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


def service_account(folder: Path, token_uri: str) -> Secret:
    """A key file as Google Cloud writes it."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    info = {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "1",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "client_email": "gateway@my-project.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    path = folder / "key.json"
    path.write_text(json.dumps(info))
    return Secret("file", str(path))
