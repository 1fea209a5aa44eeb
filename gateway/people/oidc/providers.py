"""The identity providers of the configuration. What they publish is kept over a reload that does not change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.config.settings import Settings
from gateway.errors import NotFound

if TYPE_CHECKING:
    from gateway.http_client.upstream import Upstream
    from gateway.people.oidc.provider import Provider


class Listed(Struct, frozen=True):
    """A provider as the pages name it."""

    name: str
    label: str
    issuer: str


def callback_path(name: str) -> str:
    """The path of the console to which a provider sends people back."""
    return f"/sign-in/oidc/{name}/callback"


class Providers:
    """Makes each provider at its first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Upstream | None = None
        self._made: dict[str, Provider] = {}

    def use(self, settings: Settings) -> None:
        """Take over reloaded settings."""
        before, self._settings = self._settings, settings
        same_place = before.console_url == settings.console_url
        kept = {name for name in self._made if same_place and before.oidc.get(name) == settings.oidc.get(name)}
        self._made = {name: provider for name, provider in self._made.items() if name in kept}

    @property
    def listed(self) -> list[Listed]:
        """All of them, in the order of the configuration."""
        return [Listed(name, oidc.label or name, oidc.issuer) for name, oidc in self._settings.oidc.items()]

    def get(self, name: str) -> Provider:
        """The provider of this name; NotFound."""
        if name not in self._settings.oidc:
            raise NotFound("There is no such page")
        if name not in self._made:
            # Imported here, so that only a console with a provider loads joserfc.
            from gateway.http_client.upstream import Upstream
            from gateway.people.oidc.fetch import Fetch
            from gateway.people.oidc.provider import Provider

            self._client = self._client or Upstream(keepalive=0.0)
            settings = self._settings
            redirect_uri = settings.console_url + callback_path(name)
            self._made[name] = Provider(
                name, settings.oidc[name], settings.oidc_secret(name), redirect_uri, Fetch(self._client)
            )
        return self._made[name]

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
