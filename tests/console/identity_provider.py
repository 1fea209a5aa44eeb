"""An identity provider on the loopback that checks what it is asked, and that a test can make say anything."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from joserfc import jws
from joserfc.jwk import RSAKey
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from gateway.runtime.sockets import bind_all

CLIENT = "gateway"
SECRET = "s3cret/+%"


@cache
def own_key() -> RSAKey:
    """The key of the provider."""
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


@cache
def other_key() -> RSAKey:
    """A key with the same id that is not the provider's."""
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


class IdentityProvider:
    """What it says: `person` are claims, `changes` replace claims of the token (None removes one)."""

    def __init__(self) -> None:
        self.issuer = ""
        self.person: dict[str, Any] = {"sub": "subject-1", "email": "ann@example.com", "email_verified": True}
        self.changes: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}  # parameters with which the browser goes back
        self.keys: list[RSAKey] = [own_key()]
        self.sign: Callable[[dict[str, Any]], str] = lambda claims: signed(claims, "RS256", own_key())
        self.asked: list[dict[str, str]] = []
        self.fetched: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.away: set[str] = set()  # paths that answer 503
        self.go_on = asyncio.Event()  # requests wait for it
        self.go_on.set()
        self.others: list[IdentityProvider] = []  # of the same console

    def token(self, request: dict[str, str]) -> str:
        """The ID token of a sign-in."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": request["nonce"]}
        claims |= self.person | self.changes
        return self.sign({name: value for name, value in claims.items() if value is not None})


def signed(claims: dict[str, Any], algorithm: str, key: Any, **header: Any) -> str:
    """A token."""
    head = {"alg": algorithm, "kid": "one"} | header
    return jws.serialize_compact(head, json.dumps(claims), key, algorithms=[algorithm])


def unsigned(claims: dict[str, Any]) -> str:
    """A token of the algorithm `none`."""
    return f"{start({'alg': 'none'}, claims)}."


def signed_with_the_public_key(claims: dict[str, Any]) -> str:
    """A token of HS256 whose shared secret is the public key."""
    text = start({"alg": "HS256", "kid": "one"}, claims)
    return f"{text}.{encoded(hmac.digest(own_key().as_pem(private=False), text.encode(), 'sha256'))}"


def start(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """The part of a token that is signed."""
    return ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))


def encoded(content: bytes) -> str:
    """Base64 as in tokens."""
    return urlsafe_b64encode(content).decode().rstrip("=")


class Handler(RequestHandler):
    """All endpoints."""

    def initialize(self, provider: IdentityProvider) -> None:
        self.provider = provider

    async def prepare(self) -> None:
        path = self.request.path.removeprefix("/")
        self.provider.fetched.append(path)
        await self.provider.go_on.wait()
        if path in self.provider.away:
            self.set_status(503)
            self.finish()

    def get(self, path: str) -> None:
        provider = self.provider
        if path == ".well-known/openid-configuration":
            names = ("authorization", "token", "userinfo")
            document = {f"{name}_endpoint": f"{provider.issuer}/{name}" for name in names}
            self.write(
                document | {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"} | provider.metadata
            )
        elif path == "keys":
            self.write({"keys": [key.as_dict(private=False) for key in provider.keys]})
        elif path == "userinfo":
            assert self.request.headers["Authorization"] == "Bearer access"
            self.write(provider.userinfo or provider.person)
        else:
            asked = {name: self.get_argument(name) for name in self.request.arguments}
            assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
            assert asked["client_id"] == CLIENT and "openid" in asked["scope"].split()
            provider.asked.append(asked)
            code = secrets.token_urlsafe()
            provider.codes[code] = asked
            back = {"code": code, "state": asked["state"]} | provider.answer
            self.redirect(f"{asked['redirect_uri']}?{urlencode({n: v for n, v in back.items() if v is not None})}")

    def post(self, path: str) -> None:
        form = {name: self.get_body_argument(name) for name in self.request.body_arguments}
        request = self.provider.codes.pop(form.get("code", ""), None)
        if request is None or form["redirect_uri"] != request["redirect_uri"] or not self._is_client(form):
            self.set_status(400)
            self.write({"error": "invalid_grant"})
            return
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        assert challenge == request["code_challenge"]
        self.write({"token_type": "Bearer", "access_token": "access", "id_token": self.provider.token(request)})

    def _is_client(self, form: dict[str, str]) -> bool:
        if "client_secret" in form:
            return (form["client_id"], form["client_secret"]) == (CLIENT, SECRET)
        return b64decode(self.request.headers["Authorization"].partition(" ")[2]) == b"gateway:s3cret%2F%2B%25"


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    """Serves one."""
    provider = IdentityProvider()
    server = HTTPServer(Application([(r"/(.*)", Handler, {"provider": provider})], log_function=lambda handler: None))
    [sock] = bind_all("127.0.0.1", 0, 1)
    sock.listen()
    server.add_socket(sock)
    provider.issuer = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        yield provider
    finally:
        server.stop()
        await server.close_all_connections()
