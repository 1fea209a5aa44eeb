"""`gateway reload`: makes the running gateway of this machine read its configuration again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gateway.admin.configuration_reload import ConfigurationReload
from gateway.cli.output import note, print_json
from gateway.cli.root import Failure
from gateway.cli.server_option import remotable
from gateway.cli.session import either, run
from gateway.runtime.pid_file import ask_reload, running_pid

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings


@click.command()
@click.option("--force", is_flag=True, help="Also if accounts are in a group that the configuration lacks.")
@remotable
def command(settings: Settings, force: bool, as_json: bool) -> None:
    """Check the configuration and let the running gateway use it; its log says when it does."""

    def here() -> dict[str, Any]:
        if settings.file and running_pid(settings.data_dir) is None:  # an embedded store would be started for nothing
            raise Failure(f"no gateway runs on this machine with {settings.data_dir}")
        return run(settings, work)

    async def work(session: StoreSession) -> dict[str, Any]:
        reload = ConfigurationReload(session.store, session.outbox, ask_reload)
        return await reload.run(session.actor, settings, force=force)

    async def there(client: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = await client.post("configuration", "reload", body={"force": force})
        return found

    form = either(here, there)
    if as_json:
        print_json(form)
    else:
        note(f"asked process {form['pid']} to reload; its log says when it has")
