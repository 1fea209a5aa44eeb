"""Checks whether a call would be admitted now, which rule refuses it, and what would change that.

::

    def quote(terms: PriceTerms) -> Quote:
        return endpoint.quote_size(catalog.priced(model, terms), RequestSize(tokens=1000))

    explanation = await explain(store, ledger, key_id="key_…", quote=quote)

The endpoint makes the quote at the prices of the account, and the rules of the ledger decide (`Ledger.explain`). No
upstream is called and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct, structs

from gateway.accounts.accounts import time_text
from gateway.accounts.key_scopes import read_scopes
from gateway.amounts import format_amount
from gateway.billing.price_terms import PriceTerms, UnreadablePrice
from gateway.billing.quote import Quote
from gateway.errors import NotFound, PriceUnreadable
from gateway.ledger import DryRun, Ledger, Refusal
from gateway.ledger.admission import (
    ACCOUNT,
    BUDGET,
    CONCURRENCY,
    COSTLY,
    FUNDS,
    KEY,
    MEMBER,
    MODEL,
    RPM,
    SESSION,
    SPENT,
    TOOBIG,
    TPM,
)
from gateway.ledger.api_key import ApiKey
from gateway.store.links import Links


class Rule(Struct, frozen=True):
    """The result of one rule: `pass` or `refuse`, the checked state, and for a refusal what would change it."""

    rule: str
    verdict: str
    state: str
    change: str = ""


class ModelHook(Struct, frozen=True):
    """A hook that runs for each call of the model; `timeout` in seconds, `price_factor` as a decimal text."""

    name: str
    plugin: str
    timeout: float
    on_failure: str  # "closed" or "open"
    concurrency: int  # runs at once in each worker
    price_factor: str  # of an answer that it gives


class Explanation(Struct, frozen=True):
    """The `gateway explain` document; `hold` is a decimal text, `refused_by` the rule in the caller's error."""

    admitted: bool
    key: str
    account: str
    group: str
    model: str
    tokens: int  # charged to the token limits
    hold: str
    output: int  # tokens of output that are held for
    refused_by: str
    rules: list[Rule]
    hooks: tuple[ModelHook, ...] = ()  # of the model, in the order in which they run


async def explain(
    links: Links,
    ledger: Ledger,
    *,
    key_id: str,
    quote: Callable[[PriceTerms], Quote],
    lowerable: Callable[[Quote], Quote] | None = None,
    clamp: Callable[[Quote, int], Quote | None] | None = None,
    endpoint: str = "",
) -> Explanation:
    """Check a call to `endpoint`; `quote` makes its quote at the account's prices, `clamp` that of a smaller hold.

    If the own price of the account is unreadable, the amounts are those without it. NotFound: no such key.
    """
    found = await links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
    if found is None:
        raise NotFound(f"no key {key_id!r}")
    key = ApiKey(found.decode(), key_id)
    await ledger.terms.read(key.account)
    terms = ledger.terms.of(key.account).terms
    try:
        asked = structs.replace(quote(terms), terms=terms)
    except PriceUnreadable:
        asked = structs.replace(quote(PriceTerms(listed=terms.listed)), terms=terms)
    dry_run = await ledger.explain("-", key, asked if lowerable is None else lowerable(asked))
    granted = int(dry_run.facts.get("granted", asked.hold))
    if clamp is not None and granted < asked.hold and not dry_run.refusals:
        asked = clamp(asked, granted) or asked
    return _explanation(key, asked, dry_run, endpoint)


def _free(facts: dict[str, str]) -> int:
    return int(facts["account.balance"]) - int(facts["account.held"]) - int(facts["account.floor"])


def _left(facts: dict[str, str]) -> int:
    return int(facts["key.budget"]) - int(facts["key.spent"]) - int(facts["key.held"])


# Texts of the rules --------------------------------------------------------------------------------------------------


def _explanation(key: ApiKey, quote: Quote, dry_run: DryRun, endpoint: str) -> Explanation:
    refusals = {refusal.code: refusal for refusal in dry_run.refusals}
    texts = _RuleTexts(key, quote, endpoint, dry_run.group, dry_run.facts, refusals)
    rules = [
        texts.key(),
        texts.expiry(),
        texts.account(),
        texts.scope(),
        texts.permission(),
        texts.price(),
        texts.size(),
        texts.concurrency(),
        texts.rate("requests", RPM),
        texts.rate("tokens", TPM),
        texts.cost(),
        texts.budget(),
        texts.member(),
        texts.session(),
        texts.cap(),
        texts.balance(),
    ]
    refused = [rule.rule for rule in rules if rule.verdict == "refuse"]
    return Explanation(
        admitted=not refused,
        key=key.id,
        account=key.account,
        group=dry_run.group,
        model=quote.model,
        tokens=quote.tokens,
        hold=format_amount(quote.hold),
        output=quote.worst_case.tokens_out // quote.choices,
        refused_by=refused[0] if refused else "",
        rules=rules,
    )


class _RuleTexts:
    """Describes each rule; rules.lua has decided which ones refuse."""

    def __init__(
        self, key: ApiKey, quote: Quote, endpoint: str, group: str, facts: dict[str, str], refusals: dict[int, Refusal]
    ) -> None:
        self._account = key.account
        self._quote = quote
        self._endpoint = endpoint
        self._group = group
        self._facts = facts
        self._refusals = refusals
        self._create = f"gateway keys create {key.account}"
        self._edit = f"gateway keys edit {key.id}"

    def _rule(self, name: str, refuses: bool, state: str, change: str) -> Rule:
        return Rule(name, "refuse" if refuses else "pass", state, change if refuses else "")

    def key(self) -> Rule:
        state = self._facts.get("key.state", "missing")
        return self._rule("key", KEY in self._refusals and state != "active", state, self._create)

    def expiry(self) -> Rule:
        ends = self._facts.get("key.expires")
        state = f"expires {time_text(datetime.fromtimestamp(int(ends), UTC))}" if ends else "never expires"
        refuses = KEY in self._refusals and "key.expired" in self._facts
        return self._rule("expiry", refuses, state.replace("expires", "expired") if refuses else state, self._create)

    def account(self) -> Rule:
        change = f"gateway accounts enable {self._account}"
        return self._rule("account", ACCOUNT in self._refusals, self._facts["account.state"], change)

    def scope(self) -> Rule:
        """Addresses are shown and not judged, because no caller is known."""
        scopes = read_scopes(self._facts.get("key.scopes", ""))
        parts = [f"endpoints {', '.join(scopes.endpoints)}"] if scopes.endpoints else []
        parts += [f"addresses {', '.join(map(str, scopes.addresses))}"] if scopes.addresses else []
        refuses = bool(self._endpoint and scopes.endpoints) and self._endpoint not in scopes.endpoints
        change = f"{self._edit} --endpoints {','.join((*scopes.endpoints, self._endpoint))}"
        return self._rule("scope", refuses, "; ".join(parts) or "no restriction", change)

    def cost(self) -> Rule:
        most, wanted = self._facts.get("key.max"), format_amount(self._quote.hold)
        state = f"at most {format_amount(int(most))}, {wanted} wanted" if most else "no most per call"
        return self._rule("cost", COSTLY in self._refusals, state, f"{self._edit} --max-cost {wanted}")

    def permission(self) -> Rule:
        model, account, refuses = self._quote.model, self._account, MODEL in self._refusals
        rule, listed = self._facts.get("account.rule"), self._facts.get("key.listed")
        change = f"gateway accounts allow {account} {model}"
        if listed == "0":
            state, change = "the key's own models leave it out", f"{self._create} --models {model}"
        elif rule is not None:
            state = "the account's own rule " + ("allows it" if rule == "+" else "denies it")
        else:
            state = f"group {self._group} " + ("may not use it" if refuses else "may use it")
        return self._rule("permission", refuses, state, change)

    def price(self) -> Rule:
        model, terms = self._quote.model, self._quote.terms
        own = terms.own.get(model)
        if isinstance(own, UnreadablePrice):
            change = f"gateway accounts price {self._account} {model} --clear"
            return self._rule("price", True, f"its own price is unreadable: {own.reason}", change)
        state = "the account's own" if own is not None else "the list price"
        return self._rule("price", False, state if own or not terms.listed else f"{state} with the group's factor", "")

    def size(self) -> Rule:
        tokens = self._quote.tokens
        limits = self._limits("tpm")
        state = f"{tokens} tokens" + "".join(f", {who} limit {limit}" for who, limit in limits)
        change = f"{self._raise('tpm', tokens)}, or a shorter prompt or a lower max_tokens: no wait helps"
        return self._rule("size", TOOBIG in self._refusals, state, change)

    def concurrency(self) -> Rule:
        parts = [f"{who} {self._facts[f'{who}.running']} of {limit}" for who, limit in self._limits("concurrency")]
        change = f"wait until a call ends, or {self._raise('concurrency', 1 + self._most('running'))}"
        return self._rule("concurrency", CONCURRENCY in self._refusals, ", ".join(parts) or "no limit", change)

    def rate(self, name: str, code: int) -> Rule:
        limit = "rpm" if code == RPM else "tpm"
        parts = [f"{who} {self._facts[f'{who}.{limit}.room']} of {most} left" for who, most in self._limits(limit)]
        refusal = self._refusals.get(code)
        change = f"wait {refusal.wait:.3f} s" if refusal else ""
        if TOOBIG in self._refusals and code == TPM:
            change = "see size"
        return self._rule(name, refusal is not None, ", ".join(parts) or "no limit", change)

    def budget(self) -> Rule:
        facts, refuses = self._facts, BUDGET in self._refusals
        if "key.budget" not in facts:
            return self._rule("budget", refuses, "no budget", "")
        budget = int(facts["key.budget"])
        state = (
            f"{format_amount(_left(facts))} of {format_amount(budget)} left, {format_amount(self._quote.hold)} wanted"
        )
        return self._rule(
            "budget", refuses, state, f"{self._edit} --budget {format_amount(budget - _left(facts) + self._quote.hold)}"
        )

    def member(self) -> Rule:
        facts, refuses = self._facts, MEMBER in self._refusals
        if "member.budget" not in facts:
            return self._rule("member", refuses, "no budget of a member", "")
        budget, wanted = int(facts["member.budget"]), self._quote.hold
        left = budget - int(facts["member.spent"]) - int(facts["member.held"])
        state = f"{format_amount(left)} of {format_amount(budget)} left, {format_amount(wanted)} wanted"
        change = f"gateway users limit EMAIL {self._account} --budget {format_amount(budget - left + wanted)}"
        return self._rule("member", refuses, state, change)

    def session(self) -> Rule:
        facts, refuses, wanted = self._facts, SESSION in self._refusals, self._quote.hold
        if "session.budget" not in facts:
            return self._rule("session", refuses, "no budget of a session", "")
        budget = int(facts["session.budget"])
        if "session.held" not in facts:
            return self._rule("session", refuses, f"{format_amount(budget)} for each session of a day", "")
        left = budget - int(facts["session.spent"]) - int(facts["session.held"])
        state = f"{format_amount(left)} of {format_amount(budget)} left today, {format_amount(wanted)} wanted"
        change = f"raise max_session_cost of key, account and group to {format_amount(budget - left + wanted)}"
        return self._rule("session", refuses, state, change)

    def cap(self) -> Rule:
        facts, refuses = self._facts, SPENT in self._refusals
        if "account.cap" not in facts:
            return self._rule("cap", refuses, "no monthly cap", "")
        cap, used = int(facts["account.cap"]), int(facts["account.spent"]) + int(facts["account.held"])
        wanted = self._quote.hold
        state = f"{format_amount(max(0, cap - used))} of {format_amount(cap)} left, {format_amount(wanted)} wanted"
        change = f"gateway accounts limit {self._account} --monthly {format_amount(used + wanted)}"
        return self._rule("cap", refuses, state, change)

    def balance(self) -> Rule:
        account, hold, free = self._account, self._quote.hold, _free(self._facts)
        state = f"{format_amount(free)} free, {format_amount(hold)} wanted"
        change = f"gateway accounts credit {account} {format_amount(hold - free)}"
        return self._rule("balance", FUNDS in self._refusals, state, change)

    def _limits(self, name: str) -> list[tuple[str, int]]:
        return [
            (who, int(self._facts[f"{who}.{name}"])) for who in ("key", "account") if f"{who}.{name}" in self._facts
        ]

    def _most(self, name: str) -> int:
        return max((int(self._facts.get(f"{who}.{name}", "0")) for who in ("key", "account")), default=0)

    def _raise(self, name: str, needed: int) -> str:
        """The command or setting that raises a limit."""
        places = []
        for who, limit in self._limits(name):
            used = int(self._facts.get(f"{who}.running", "0")) + 1 if name == "concurrency" else needed
            if used > limit:
                places.append(
                    f"{self._edit} --{name} {used}" if who == "key" else f"set [groups.{self._group}] {name} = {used}"
                )
        return " and ".join(places) or f"set {name} higher"
