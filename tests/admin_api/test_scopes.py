"""The table of scopes in docs/admin-api.md: each action with tokens that it names, and with those that it does not."""

from __future__ import annotations

from itertools import combinations, count
from pathlib import Path

import pytest
from msgspec import Struct

from gateway.admin.actor import SCOPES, SITE_ONLY, Actor, Scope
from gateway.admin_api.table import ROUTES
from gateway.people.role_rights import ROLE_SCOPES
from tests.admin.conftest import Outgoing
from tests.admin_api.actions import ACTIONS, Actions
from tests.admin_api.client import ROOT, NamedActors
from tests.admin_api.conftest import OpenApi

PAGE = (Path(__file__).parents[2] / "docs" / "admin-api.md").read_text(encoding="utf-8")
Scopes = frozenset[Scope]
ENDS = "End the token itself"
HEAD = "| action | " + " | ".join(f"`{scope}`" for scope in SCOPES) + " | token of one account |"


class Rule(Struct, frozen=True):
    """A row of the table."""

    action: str
    suffices: Scopes  # scopes of which one is enough
    needed: Scopes  # scopes that are needed together
    of_account: bool  # whether a token of one account may do it there

    def permits(self, scopes: Scopes, account: str) -> bool:
        """Whether a token with these scopes may do it."""
        has_scope = bool(self.suffices & scopes or (self.needed and self.needed <= scopes))
        return has_scope and (not account or self.of_account)


def rules() -> list[Rule]:
    """The rows of the page."""
    _, _, rest = PAGE.partition(HEAD + "\n")
    rows = []
    for line in rest.splitlines()[1:]:
        if not line.startswith("|"):
            break
        action, *cells, last = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(cells) <= {"", "one", "all"} and last in ("yes", "no"), line
        marked = dict(zip(SCOPES, cells, strict=True))
        one, every = (frozenset(scope for scope in SCOPES if marked[scope] == text) for text in ("one", "all"))
        rows.append(Rule(action, one, every, last == "yes"))
    return rows


RULES = rules()
PARTS = 2  # of the slowest test


def tokens(rule: Rule, *, every: bool) -> list[tuple[Scopes, str]]:
    """Scopes and account of the tokens that a rule is tried with.

    `every` stands for every set: those of one scope, and those that lack at most one. A rule that permits too much
    because of one scope, or too little without one, differs for one of these. Each two scopes are tried together with
    every third rule.
    """
    everything = frozenset(SCOPES)
    if every:
        two = list(combinations(SCOPES, 2))[RULES.index(rule) % 3 :: 3]
        few = {frozenset(some) for some in (*combinations(SCOPES, 1), *two)}
        right, wrong = few | {everything} | {everything - {scope} for scope in SCOPES}, set[Scopes]()
    else:
        right = {frozenset({scope}) for scope in rule.suffices} or {rule.needed}
        wrong = {everything - rule.suffices - rule.needed} | {everything - {scope} for scope in rule.needed}
    bound = [(scopes, "acme") for scopes in sorted(right, key=sorted) if not scopes & SITE_ONLY]
    return [(scopes, "") for scopes in sorted(right | wrong, key=sorted) if scopes] + bound


async def verdicts(api: OpenApi, rules: list[Rule], *, every: bool) -> tuple[list[str], set[str]]:
    """What the gateway decides otherwise than the rows, and the routes that were tried."""
    faults, tried, named, numbers = list[str](), set[str](), NamedActors(), count()
    async with api(named) as a:
        actions, people, mail = Actions(a), await a.services.people(), Outgoing()
        mail.is_set_up, people.mail = False, mail  # where e-mails are sent, a token of one account gets no link
        for rule in rules:
            for scopes, account in tokens(rule, every=every):
                token = f"tok_{next(numbers)}"  # each has changes of its own in the limit
                if ENDS in rule.action:
                    token = (await people.tokens.create(ROOT, "test", ["read"])).record.id
                named.actors["token"] = Actor(kind="token", id=token, scopes=scopes, account=account)
                sent = await ACTIONS[rule.action](actions)
                tried.add(sent.route)
                answer = await a.ask(sent.method, sent.path, sent.body, headers=sent.headers, token="token")
                # A token of one account does not learn whether there are others: what it may not see is not found.
                refused = (403, 404) if account else (403,)
                if answer.status not in ((200, 201) if rule.permits(scopes, account) else refused):
                    faults.append(f"{rule.action}: {sorted(scopes)} {account or 'of the site'}: {answer.document}")
    return faults, tried


@pytest.mark.holds("admin-api.md#scopes-1")
def test_table_has_every_action_once() -> None:
    assert [rule.action for rule in RULES] == list(ACTIONS)
    assert len(RULES) <= 4 * 18


@pytest.mark.holds("admin-api.md#scopes-2", "security.md#scopes-of-admin-tokens-3")
def test_roles_need_in_the_table_what_they_allow() -> None:
    needed = {rule.action: rule.needed for rule in RULES}
    for role, action in (("member", "Make a user a member"), ("owner", "Make a user or a member an owner")):
        assert needed[f"{action} of an account"] == ROLE_SCOPES[role] | {"users"}


@pytest.mark.holds("admin-api.md#scopes-1", "security.md#scopes-of-admin-tokens-1")
async def test_prices_limits_and_roles_need_the_scopes_of_their_rows(api) -> None:
    some = [rule for rule in RULES if rule.suffices == {"accounts"} or 0 < len(rule.needed) < len(SCOPES)]
    faults, tried = await verdicts(api, some, every=False)
    assert faults == []
    assert {"accounts_move", "accounts_enable", "prices_set", "members_set", "members_invite", "users_link"} <= tried


@pytest.mark.holds(
    "admin-api.md#scopes-1",
    "people.md#who-is-who-6",
    "security.md#scopes-of-admin-tokens-1",
    "security.md#scopes-of-admin-tokens-2",
)
@pytest.mark.slow
async def test_each_action_needs_the_scopes_of_its_row_and_each_change_has_a_row(api) -> None:
    faults, tried = await verdicts(api, RULES, every=False)
    assert faults == []
    assert tried == {route.operation_id for route in ROUTES if route.method != "GET" or route.path.endswith("/export")}


@pytest.mark.holds("admin-api.md#scopes-1", "security.md#scopes-of-admin-tokens-1")
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_each_action_is_refused_to_other_sets_of_scopes(api, part: int) -> None:
    faults, _ = await verdicts(api, RULES[part::PARTS], every=True)
    assert faults == []
