"""What `gateway serve --demo` prints: a key, a curl command, a link to the console, how to configure a real model."""

from __future__ import annotations

import logging
import sys

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO, format_amount
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.ledger import Ledger
from gateway.log import gateway_log
from gateway.store import Store

ACCOUNT = "demo"
BALANCE = 10 * NANO
MODEL = "fake-chat"

TEXT = """
The demo gateway is running on {base_url} with the account "{account}" (balance {balance}).
This key is shown once:

    {key}

Try it:

    curl -N {base_url}/chat/completions \\
      -H "Authorization: Bearer {key}" -H "Content-Type: application/json" \\
      -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
{console}
The model "{model}" is a stand-in that needs no network. For real ones, stop the demo and run `gateway init`: it writes
gateway.toml with the names of the variables that hold keys, and the model servers on this machine.
Then read the file, and run: gateway serve
"""
CONSOLE = """
The console shows two accounts with invented people and calls. This link signs you in as the operator, once:

    {link}
"""


async def announce(settings: Settings, store: Store, pepper: bytes, *, base_url: str) -> None:
    """Create what is missing of the demo, and a key; print how to use it.

    With a configuration file only the account is created: nothing is invented in a store that may have real accounts.
    """
    console = await _furnish(settings, store) if settings.is_demo else ""
    ledger = Ledger(store, {})
    accounts, keys = Accounts(store, ledger), Keys(store, pepper)
    if ACCOUNT not in await ledger.accounts():
        await accounts.create(ACCOUNT, group="default", balance=BALANCE)
    key, balance = await keys.create(ACCOUNT, name="demo"), (await accounts.show(ACCOUNT)).balance
    text = TEXT.format(
        base_url=base_url,
        account=ACCOUNT,
        balance=format_amount(balance),
        key=key.text,
        model=MODEL,
        console=console,
    )
    print(text, file=sys.stdout, flush=True)  # noqa: T201 - the output of the command


async def _furnish(settings: Settings, store: Store) -> str:
    """The text with the link; empty if the database cannot be used."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs its plugins when it is imported
    from gateway.runtime.demo_site import fill_demo  # loads SQLAlchemy, which only the demo needs in this process

    try:
        link = await fill_demo(settings, store)
    except GatewayError as error:
        gateway_log.error("the demo has no link to the console: %s %s", error.message, error.log_text())
        return ""
    return CONSOLE.format(link=link.url)
