"""One question for the list of a provider, within bounds. Its errors become a text for operators, without addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.config.settings import ProviderSettings
from gateway.discovery.checked_lists import CheckedList, checked_list
from gateway.discovery.stored_lists import StoredList, prices_kept
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.plugins.isolation import is_plugin_error
from gateway.plugins.model_list import ListLimits, ModelList
from gateway.redaction import hide, redact

WITHIN = 45.0  # seconds for a plugin's method, above the limit of its request
LIMITS = ListLimits()


class NoList(Exception):
    """The provider gave no list; the text is for operators, and has nothing of the upstream."""


async def ask(
    name: str, provider: object, settings: ProviderSettings, before: StoredList, *, now: float
) -> CheckedList:
    """The provider's list, checked. NoList if it gives none, or one without a model."""
    listed = await _listed(name, provider)
    found = await asyncio.to_thread(
        checked_list,
        listed,
        before,
        now=now,
        max_change=settings.discover_max_change,
        keep=prices_kept(settings),
    )
    if not found.found.models:
        raise NoList("the list has no models")
    return found


async def _listed(name: str, provider: object) -> Sequence[object]:
    if provider is None:
        raise NoList("the provider is out of service")
    if not isinstance(provider, ModelList):
        raise NoList("this plugin cannot list models")
    try:
        async with asyncio.timeout(WITHIN):
            listed = await provider.list_models(LIMITS)
        if not isinstance(listed, (list, tuple)):
            raise NoList("the plugin's list is no list")
        return listed[: LIMITS.most_models]
    except NoList:
        raise
    except BaseException as error:
        # A third party's method may raise anything.
        if not is_plugin_error(error):
            raise
        detail = error.log_text() if isinstance(error, GatewayError) else str(error)
        secrets = getattr(provider, "secret_texts", ())
        gateway_log.warning(
            "provider %s gives no list of models: %s %s", name, type(error).__name__, redact(hide(detail, secrets))
        )
        raise NoList(_text(error)) from None


def _text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {WITHIN:g} s"
    if isinstance(error, GatewayError):
        return f"{error.code}: {error.message}" if error.code else error.message
    return type(error).__name__
