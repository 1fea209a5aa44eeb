"""Fetches images and documents that a request names by address, for providers whose dialect takes bytes.

Off unless a provider has `fetch_media`. It happens before the quote, so that the content counts in the estimate, in the
hold and in the budgets of request bodies. Nothing is kept: the same address is fetched for each request.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.catalog import Model
from gateway.errors import GatewayError, InvalidValue
from gateway.inference.call_hold import check_permission
from gateway.inference.call_quote import find_model
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.schemas.media_addresses import MediaAddress, media_type
from gateway.uploads.budget import Share

MOST_BYTES: Final = 20 << 20  # of one image or document
MOST_MEDIA: Final = 32  # of one request
AT_ONCE: Final = 4  # of one request


async def fetch_media(asked: CallRequest, endpoint: Endpoint[Any], services: Services) -> None:
    """Replace the addresses in the decoded request by what they point to; InvalidValue if that fails."""
    addresses: Sequence[MediaAddress] = endpoint.media_addresses(asked.content)
    if not addresses:
        return
    model = asked.model = find_model(asked.content.model, services)
    if not _is_concerned(model, services):
        return
    await check_permission(asked, services)
    if len(addresses) > MOST_MEDIA:
        raise InvalidValue(f"At most {MOST_MEDIA} addresses are fetched.", param=addresses[MOST_MEDIA].param)
    share = asked.media = services.bodies.memory.share(asked.key.account)
    contents = await _fetch_all(addresses, asked, share, services)
    async with services.paced_steps.turn(asked.key.account, asked):
        asked.content = endpoint.with_media(asked.content, contents)
    asked.body_size += share.size


def _is_concerned(model: Model, services: Services) -> bool:
    """Whether the model, or a fallback of it, has a target with such a provider."""
    fallbacks = (services.catalog.find(name) for name in model.fallbacks)
    models = (model, *(one for one in fallbacks if one is not None))
    return any(one.target.provider in services.media_fetching.providers for each in models for one in each.targets)


async def _fetch_all(
    addresses: Sequence[MediaAddress], asked: CallRequest, share: Share, services: Services
) -> Mapping[str, bytes]:
    """The data URL of each address, a few at a time; the first failure ends the others."""
    from gateway.http_client.public_fetch import FetchFailed, PublicClient

    fetching, slots, found = services.media_fetching, asyncio.Semaphore(AT_ONCE), dict[str, bytes]()
    most = min(MOST_BYTES, services.settings.server.limits.max_json_body)

    async def fetch(client: PublicClient, address: MediaAddress) -> None:
        async with slots:
            try:
                content = await client.get(address.url, most=most)
            except FetchFailed as error:
                raise InvalidValue(f"Cannot fetch '{address.param}': {error}.", param=address.param) from None
            kind = media_type(content)
            if not kind:
                raise InvalidValue(f"'{address.param}' is no image and no PDF.", param=address.param)
            share.take(len(content) * 4 // 3)
            found[address.url] = await asyncio.to_thread(_data_url, kind, content)

    each = {address.url: address for address in addresses}  # one that is named twice is fetched once
    under_way = fetching.budget.share(asked.key.account)
    under_way.take(min(AT_ONCE, len(each)))
    try:
        async with PublicClient(fetching.tls) as client, asyncio.TaskGroup() as group:
            for address in each.values():
                group.create_task(fetch(client, address))
    except ExceptionGroup as failed:
        raise _first(failed) from None
    finally:
        under_way.close()
    return found


def _data_url(kind: str, content: bytes) -> bytes:
    return b"data:%b;base64,%b" % (kind.encode(), b64encode(content))


def _first(failed: ExceptionGroup[Exception]) -> Exception:
    """The error for the caller: the first of the gateway's own, or else a bug."""
    return next((error for error in failed.exceptions if isinstance(error, GatewayError)), failed.exceptions[0])
