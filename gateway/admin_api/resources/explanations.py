"""`/keys/{key}/explain`: whether a call would be admitted now."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.accounts.admission_check import Explanation
from gateway.admin_api.call import AdminCall
from gateway.admin_api.resources.accounts import Count
from gateway.admin_api.resources.keys import READ
from gateway.admin_api.route import AdminRoute
from gateway.config.settings import Endpoint


class ExplainQuery(Struct, frozen=True, kw_only=True):
    """The call to check; its size is what `gateway explain` takes."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    endpoint: Annotated[
        Endpoint | None,
        Meta(description="By default the first endpoint that the model serves."),
    ] = None
    tokens: Annotated[Count, Meta(description="Of the prompt.")] = 1000
    max_tokens: Count | None = None
    images: Count = 1
    seconds: Annotated[Count, Meta(description="Of audio to transcribe.")] = 60
    stream: bool = False
    session: Annotated[str, Meta(max_length=64, description="The id of the call's session.")] = ""


async def explain(call: AdminCall, key: str, query: ExplainQuery) -> dict[str, Any]:
    # The endpoints of /v1 take 0.3 s to import, and few processes are asked.
    from gateway.admin.call_check import check_call
    from gateway.api.routes import endpoint_named
    from gateway.inference.endpoint import RequestSize

    size = RequestSize(query.tokens, query.max_tokens, query.stream, query.images, query.seconds)
    found = await check_call(
        call.store.store,
        call.services.settings,
        key,
        query.model,
        size,
        endpoint=query.endpoint,
        session=query.session,
        endpoint_named=endpoint_named,
    )
    form: dict[str, Any] = msgspec.to_builtins(found)
    return form


ROUTES = (
    AdminRoute(
        method="GET",
        path="/keys/{key}/explain",
        access=READ,
        summary="Say whether a call of a key would be admitted now, and which rules refuse it",
        function=explain,
        query=ExplainQuery,
        answer=Explanation,
    ),
)
