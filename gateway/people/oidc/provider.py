"""One identity provider: where people sign in, and who came back with a code."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode

from msgspec import Struct

from gateway.config.oidc_settings import OidcSettings
from gateway.config.secret import Secret, SecretError
from gateway.errors import IdentityProviderUnavailable, SignInRefused
from gateway.http_server.client_address import network_of
from gateway.people.oidc.documents import WELL_KNOWN, FetchedDocument, JsonWebKeys, Metadata, checked_metadata
from gateway.people.oidc.fetch import Fetch, decoded
from gateway.people.oidc.flows import Callback
from gateway.people.oidc.id_token import Expected, candidates, checked_claims, header_of

SCOPES = ("openid", "email", "profile")
KEYS_AGAIN_AFTER = 60.0  # seconds; after that, a signature of no known key has the keys fetched again
BAD_CODE = frozenset({"invalid_grant", "invalid_request"})  # some providers say the second one of a malformed code
BASIC = "client_secret_basic"
POST = "client_secret_post"
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)


class Tokens(Struct, frozen=True):
    """The answer of the token endpoint, as far as it is used."""

    id_token: str
    access_token: str = ""


class Refusal(Struct, frozen=True):
    """The answer of the token endpoint to a code that it does not take."""

    error: str = ""


class Provider:
    """A client of one provider. SignInRefused if a person is not let in, IdentityProviderUnavailable for its faults."""

    def __init__(self, name: str, oidc: OidcSettings, secret: Secret, redirect_uri: str, fetch: Fetch) -> None:
        self.name = name
        self.settings = oidc
        self._secret = secret
        self._redirect_uri = redirect_uri
        self._fetch = fetch
        self._metadata = FetchedDocument(f"the metadata of oidc.{name}", self._fetch_metadata)
        self._keys = FetchedDocument(f"the keys of oidc.{name}", self._fetch_keys)

    @property
    def issuer(self) -> str:
        """The issuer's identifier."""
        return self.settings.issuer

    async def reach(self) -> None:
        """IdentityProviderUnavailable if nothing is known of the provider, and it does not answer."""
        await self._metadata.get()

    async def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes."""
        metadata = await self._metadata.get()
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(dict.fromkeys((*SCOPES, *self.settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        url = metadata.authorization_endpoint
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def claims(self, callback: Callback, *, nonce: str, verifier: str, address: str) -> dict[str, Any]:
        """The claims about the person who came back; `address` is that of the client. TooManyRequests."""
        metadata = await self._metadata.get()
        announced = metadata.authorization_response_iss_parameter_supported
        if (callback.issuer or announced) and callback.issuer != self.issuer:
            raise SignInRefused(detail="issuer")
        if callback.error == "access_denied":
            raise SignInRefused("The sign-in was cancelled", detail="cancelled")
        if callback.error or not callback.code:
            raise SignInRefused(detail="error")
        network = network_of(address)
        tokens = await self._exchange(metadata, callback.code, verifier, network)
        claims = await self._checked(metadata, tokens.id_token, nonce)
        return await self._completed(metadata, claims, tokens.access_token, network)

    async def _exchange(self, metadata: Metadata, code: str, verifier: str, network: str) -> Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers: Mapping[str, str] = {}
        try:
            secret = await asyncio.to_thread(self._secret.reveal)
        except SecretError as error:
            raise IdentityProviderUnavailable(detail=str(error)) from None
        methods = metadata.token_endpoint_auth_methods_supported
        if methods is not None and BASIC not in methods and POST in methods:
            form |= {"client_id": self.settings.client_id, "client_secret": secret}
        else:
            pair = f"{quote_plus(self.settings.client_id)}:{quote_plus(secret)}"
            headers = {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        status, body = await self._fetch.post(metadata.token_endpoint, form, headers=headers, network=network)
        if status == 200:
            return decoded(body, Tokens)
        if status == 400 and decoded(body, Refusal).error in BAD_CODE:
            raise SignInRefused(detail="code")
        raise IdentityProviderUnavailable(detail=f"the token endpoint answers {status}")

    async def _checked(self, metadata: Metadata, token: str, nonce: str) -> dict[str, Any]:
        header = header_of(token)
        expected = Expected(self.issuer, self.settings.client_id, nonce, metadata.id_token_signing_alg_values_supported)
        known = await self._keys.get()
        try:
            return checked_claims(token, header, candidates(header, known.keys), expected, at=time.time())
        except SignInRefused as error:
            if error.detail != "signature":
                raise
            # The provider may have new keys, with new key ids or without.
            newer = await self._keys.get(younger_than=KEYS_AGAIN_AFTER, pause=KEYS_AGAIN_AFTER)
            if newer is known:
                raise
        return checked_claims(token, header, candidates(header, newer.keys), expected, at=time.time())

    async def _completed(
        self, metadata: Metadata, claims: dict[str, Any], access_token: str, network: str
    ) -> dict[str, Any]:
        """With the claims of the userinfo endpoint, if the token lacks some that are needed."""
        verified = self.settings.email_verified_claim
        wanted = ("email", verified, *(grant.claim for grant in self.settings.grants))
        is_complete = all(name in claims or name.partition(".")[0] in claims for name in wanted)
        if is_complete or not metadata.userinfo_endpoint or not _TOKEN.fullmatch(access_token):
            return claims
        headers = {"Authorization": f"Bearer {access_token}"}
        more = await self._fetch.get(metadata.userinfo_endpoint, dict[str, Any], headers=headers, network=network)
        if more.get("sub") != claims["sub"]:
            raise SignInRefused(detail="subject")
        if "email" in claims and more.get("email") != claims["email"]:
            more.pop(verified, None)  # it is said of another address
        if "email" in more and "email" not in claims:
            claims.pop(verified, None)
        return {**more, **claims}

    async def _fetch_metadata(self) -> Metadata:
        url = self.issuer.rstrip("/") + WELL_KNOWN
        return checked_metadata(await self._fetch.get(url, Metadata), self.issuer)

    async def _fetch_keys(self) -> JsonWebKeys:
        return await self._fetch.get((await self._metadata.get()).jwks_uri, JsonWebKeys)
