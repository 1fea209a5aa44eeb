"""The `gateway` command; each command group is a file of its own here, imported only when it runs.

`main()` is the console entry. Exit status: 0 done, 1 refused or found wanting, 2 wrong use. Documents go to stdout,
messages to stderr as one line `gateway: …`. Sharp edge: nothing at the top of this file may import the engine, for
`gateway --help` answers in 0.1 s with click alone and takes 0.4 s with it.
"""

from __future__ import annotations

import atexit
import gc

from gateway.cli.root import Root

# Allocations between two looks for garbage. Modules leave none, and with the default of 700 these looks take a sixth of
# the processor time of `gateway usage show`.
YOUNG = 20_000

COMMANDS = {
    "init": "Write a first configuration from the keys and model servers that are here.",
    "serve": "Run the gateway until SIGTERM.",
    "check": "Validate the configuration, the plugins and the store.",
    "config": "The configuration: in effect, beside the running one, and as a schema.",
    "reload": "Let the running gateway read its configuration again.",
    "accounts": "Create, show, credit, disable, enable, move, allow and deny.",
    "keys": "Create, list and revoke API keys.",
    "users": "People who sign in: create, change, invite, export, erase.",
    "tokens": "Create, list and revoke admin tokens of programs.",
    "models": "What is served.",
    "prices": "Tables of public prices: renew, list and revert.",
    "plugins": "What is loaded, what it can do, and why something is not.",
    "audit": "Compare the ledger with the balances.",
    "audit-trail": "Who changed what, before and after.",
    "calls": "The calls that run now: list and cancel.",
    "batches": "Batches of all accounts: list, show and cancel.",
    "usage": "An account's ledger lines with tokens and cost, and one call.",
    "report": "Calls, tokens, money and times in any range, in groups.",
    "refused": "List and book settlements that the store refused.",
    "superseded": "List, book and acknowledge lines that an older store has lost.",
    "notify": "Send a test event, show the queue of events, and set thresholds.",
    "history": "Attach, copy and rebuild the history in the database, and import archives.",
    "import": "Accounts, keys and users from CSV files, a configuration of LiteLLM.",
    "backup": "Write the whole deployment into a folder.",
    "restore": "Put a backup in place, and list what that undoes.",
    "explain": "Whether a call would be admitted now, and which rules refuse it.",
}

cli = Root(
    "gateway",
    commands=COMMANDS,
    help="One OpenAI-compatible address over many model providers, with a ledger that can be proved.",
)


def main() -> None:
    """The console entry."""
    gc.set_threshold(YOUNG, 10, 10)
    atexit.register(gc.freeze)  # no last garbage collection: a fifth of a command's time
    cli(prog_name="gateway")
