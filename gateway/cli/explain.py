"""`gateway explain`: whether a call would be admitted now, and if not, what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from gateway.accounts.admission_check import Explanation
from gateway.cli.output import note, print_json, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import either, run
from gateway.cli.values import COUNT
from gateway.config.settings import Endpoint, Settings

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession

ENDPOINTS = get_args(Endpoint)
COLUMNS = ("rule", "verdict", "state", "change")
HOOK_COLUMNS = ("name", "plugin", "timeout", "on_failure", "concurrency", "price_factor")


@click.command()
@click.argument("key_id")
@click.argument("model")
@click.option("--tokens", type=COUNT, default=1000, show_default=True, metavar="N", help="Tokens of the prompt.")
@click.option("--max-tokens", type=COUNT, metavar="N", help="The request's own limit on the answer.")
@click.option("--images", type=COUNT, default=1, show_default=True, metavar="N", help="Images asked for.")
@click.option(
    "--seconds", type=COUNT, default=60, show_default=True, metavar="N", help="Seconds of audio to transcribe."
)
@click.option(
    "--endpoint",
    type=click.Choice(ENDPOINTS),
    help="What the model is asked for; by default the first endpoint that it serves.",
)
@click.option("--session", default="", metavar="ID", help="The session of the call, whose budget is checked, too.")
@click.option("--stream", is_flag=True, help="The answer is a stream, which holds less and asks for more as it goes.")
@remotable
@click.pass_context
def command(
    ctx: click.Context,
    settings: Settings,
    /,
    key_id: str,
    model: str,
    endpoint: str | None,
    session: str,
    as_json: bool,
    **size: Any,
) -> None:
    """Say whether a call of KEY_ID to MODEL would be admitted now; exit status 1 if not. Calls and writes nothing."""

    async def work(opened: StoreSession) -> Explanation:
        from gateway.admin.call_check import check_call
        from gateway.api.routes import endpoint_named
        from gateway.inference.endpoint import RequestSize

        asked = RequestSize(**size)
        return await check_call(
            opened.store,
            opened.settings,
            key_id,
            model,
            asked,
            endpoint=endpoint,
            session=session,
            endpoint_named=endpoint_named,
        )

    async def there(client: AdminClient) -> Explanation:
        query = {name: value for name, value in size.items() if name != "stream"}
        query |= {"session": session} if session else {}
        stream = "true" if size["stream"] else None
        found = await client.get("keys", key_id, "explain", model=model, endpoint=endpoint, stream=stream, **query)
        return msgspec.convert(found, Explanation)

    explanation = either(lambda: run(settings, work), there)
    if as_json:
        print_json(explanation)
    else:
        print_table(COLUMNS, msgspec.to_builtins(explanation.rules))
        if explanation.hooks:
            note("hooks that then run, in this order")
            print_table(HOOK_COLUMNS, msgspec.to_builtins(explanation.hooks))
    verdict = "would be admitted" if explanation.admitted else f"would be refused by {explanation.refused_by}"
    hold = f"hold {explanation.hold} for up to {explanation.output} tokens of output"
    note(f"{verdict}: {explanation.tokens} tokens, {hold}")
    ctx.exit(0 if explanation.admitted else 1)
