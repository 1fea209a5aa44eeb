"""The text of `gateway serve --demo`: a key, a curl command, and how to configure a real model."""

from __future__ import annotations

import sys

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.ledger import Ledger
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

The model "{model}" is a stand-in that needs no network. For a real one, copy conf/gateway.toml to gateway.toml, name
your provider under [providers.openai] and your models under [models."…"], and run: gateway serve
"""


async def announce(store: Store, pepper: bytes, *, base_url: str) -> None:
    """Create the demo account, if there is none, and a key; print how to use it."""
    ledger = Ledger(store, {})
    accounts, keys = Accounts(store, ledger), Keys(store, pepper)
    if ACCOUNT not in await ledger.accounts():
        await accounts.create(ACCOUNT, group="default", balance=BALANCE)
    key = await keys.create(ACCOUNT, name="demo")
    text = TEXT.format(base_url=base_url, account=ACCOUNT, balance="10", key=key.text, model=MODEL)
    print(text, file=sys.stdout, flush=True)  # noqa: T201 - the output of the command
