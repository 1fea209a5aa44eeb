"""`/site/accounts`: all accounts: search, create, credit, refund, group, limits, models, disable."""

from __future__ import annotations

from functools import partial
from typing import Any

from gateway.accounts.accounts import Account
from gateway.admin.account_limits import Limits
from gateway.admin.model_names import known_group, known_models
from gateway.admin.pages import page_of
from gateway.amounts import format_amount
from gateway.config.settings import Settings
from gateway.console.choices import chosen_models, models_to_choose
from gateway.console.fields import amount_field, count_field, new_operation, required_amount
from gateway.console.group_limits import COUNTS, account_limits, group_limits
from gateway.console.pages.site_prices import own_prices
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue

PATH = "/site/accounts"
AMOUNTS = {
    "floor": "Lowest balance",
    "monthly": "Cap of a month",
    "max_session_cost": "Most for one session",
}
RULES = {"group": "as the group says", "allow": "allowed", "deny": "denied"}


async def list_(visit: Visit) -> Reply:
    search = visit.query("q").lower()
    found = await visit.store.accounts.page(after=visit.query("after"), containing=search, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    values = {
        "accounts": shown,
        "next": last.name if last else "",
        "search": search,
        "is_first": not visit.query("after"),
    }
    return View("site_accounts.html", "Accounts", values)


async def new(visit: Visit) -> Reply:
    return View("site_account_new.html", "Create an account", {"groups": sorted(visit.settings.groups)})


async def create(visit: Visit) -> Reply:
    name, group = visit.text("name"), visit.text("group")
    known_group(visit.settings, group)
    balance = amount_field(visit, "balance", "Opening balance") or 0
    await visit.store.account_admin.create(visit.actor, name, group=group, balance=balance)
    await visit.store.remember_accounts()
    visit.note(f"The account {name} is open. Next: create an API key, or invite people.")
    return Redirect(f"{PATH}/{name}")


async def show(visit: Visit, account: str) -> Reply:
    record = await visit.store.accounts.show(account)
    models = models_to_choose(visit.settings.models, {*record.allowed, *record.denied, *chosen_models(visit)})
    values = {
        "account": record,
        "groups": sorted({*visit.settings.groups, record.group}),
        "rules": RULES,
        "models": models,
        "rule": partial(_rule, record),
        "chosen": chosen_models(visit) if visit.error is not None else [],
        "enabled": {name for name in models.names if _is_of_group(visit.settings, name, record.group)},
        "prices": await own_prices(visit, record),
        "limits": _limit_texts(record),
        "counts": COUNTS,
        "of_group": group_limits(visit.settings, record.group),
        "effective": account_limits(visit.settings, record),
        "operation": new_operation(),
        "refund_operation": new_operation(),
        "request_id": visit.query("refund"),
    }
    return View("site_account.html", f"Account {account}", values)


async def credit(visit: Visit, account: str) -> Reply:
    amount = required_amount(visit, "amount", "Credit")
    return await _book(visit, account, amount, f"{format_amount(amount)} were added.")


async def debit(visit: Visit, account: str) -> Reply:
    await visit.confirm_password()
    amount = required_amount(visit, "taken", "Amount to take")
    return await _book(visit, account, -amount, f"{format_amount(amount)} were taken away.", prefix="debit_")


async def refund(visit: Visit, account: str) -> Reply:
    refunded = await visit.store.money.refund(
        visit.actor,
        account,
        visit.text("request_id"),
        amount_field(visit, "refund_amount", "Refund"),
        operation=_operation(visit, "refund_operation"),
        note=visit.text("refund_note"),
    )
    text = f"{format_amount(refunded.amount)} of the request are given back."
    visit.note(text if refunded.status != "repeated" else "This refund was made already; nothing was moved again.")
    return Redirect(f"{PATH}/{account}")


async def move(visit: Visit, account: str) -> Reply:
    group = visit.text("group")
    known_group(visit.settings, group)
    await visit.store.account_admin.move(visit.actor, account, group)
    visit.note(f"The account is in the group {group} now.")
    return Redirect(f"{PATH}/{account}")


async def limit(visit: Visit, account: str) -> Reply:
    record = await visit.store.accounts.show(account)
    typed = {name: count_field(visit, name, label) for name, label in COUNTS.items()}
    typed |= {name: amount_field(visit, name, label) for name, label in AMOUNTS.items()}
    before = _limits(record)
    changed: Limits = {}
    changed.update(
        {name: value for name, value in typed.items() if value is not None and value != before[name]}  # type: ignore[typeddict-item]
    )
    clear = [name for name, value in typed.items() if value is None and before[name] is not None]
    if changed or clear:
        await visit.store.money.limit(visit.actor, account, clear=clear, **changed)
    visit.note("The limits are set, from the next call on.")
    return Redirect(f"{PATH}/{account}")


async def rule(visit: Visit, account: str) -> Reply:
    record, wanted = await visit.store.accounts.show(account), visit.text("rule")
    models = known_models(visit.settings, chosen_models(visit), also={*record.allowed, *record.denied})
    if not models:
        raise InvalidValue("Choose a model", param="models")
    admin = visit.store.account_admin
    if wanted == "allow":
        await admin.allow(visit.actor, account, models)
    elif wanted == "deny":
        await admin.deny(visit.actor, account, models)
    else:
        raise InvalidValue("Choose whether to allow or to deny", param="rule")
    visit.note(f"{', '.join(models)}: {RULES[wanted]}.")
    return Redirect(f"{PATH}/{account}")


async def disable(visit: Visit, account: str) -> Reply:
    await visit.confirm_password()
    await visit.store.account_admin.disable(visit.actor, account)
    visit.note("The account is disabled: its calls are refused, those that ran are cut.")
    return Redirect(f"{PATH}/{account}")


async def enable(visit: Visit, account: str) -> Reply:
    await visit.store.account_admin.enable(visit.actor, account)
    visit.note("The account works again.")
    return Redirect(f"{PATH}/{account}")


async def _book(visit: Visit, account: str, amount: int, text: str, *, prefix: str = "") -> Reply:
    credited = await visit.store.account_admin.credit(
        visit.actor,
        account,
        amount,
        operation=_operation(visit, f"{prefix}operation"),
        note=visit.text(f"{prefix}note"),
        allow_negative=amount < 0,
        force=bool(visit.text("force")),
    )
    visit.note(text if credited.status != "repeated" else "This was booked already; nothing was moved again.")
    return Redirect(f"{PATH}/{account}")


def _operation(visit: Visit, name: str) -> str:
    operation = visit.text(name)
    if not operation:
        raise InvalidValue("The form is not complete: reload the page, and try again", param=name)
    return operation


def _rule(account: Account, model: str) -> str:
    return "deny" if model in account.denied else "allow" if model in account.allowed else "group"


def _is_of_group(settings: Settings, model: str, group: str) -> bool:
    known = settings.models.get(model)
    return known is not None and group in known.groups


def _limits(account: Account) -> dict[str, int | None]:
    return {name: getattr(account, name) for name in (*COUNTS, *AMOUNTS)}


def _limit_texts(account: Account) -> dict[str, str]:
    limits: dict[str, Any] = _limits(account)
    texts = {name: str(limits[name] or "") for name in COUNTS}
    return texts | {name: "" if limits[name] is None else format_amount(limits[name]) for name in AMOUNTS}


def _post(path: str, function: Any) -> PageRoute:
    return PageRoute(
        method="POST", path=f"{PATH}/{{account}}/{path}", audience="operator", function=function, form=show
    )


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="viewer",
        function=list_,
        help="console#what-operators-do",
        menu="Accounts",
        group="People",
    ),
    PageRoute(method="GET", path="/site/new-account", audience="operator", function=new),
    PageRoute(method="POST", path="/site/new-account", audience="operator", function=create, form=new),
    PageRoute(
        method="GET", path=f"{PATH}/{{account}}", audience="viewer", function=show, help="console#what-operators-do"
    ),
    _post("credit", credit),
    _post("debit", debit),
    _post("refund", refund),
    _post("group", move),
    _post("limits", limit),
    _post("models", rule),
    _post("disable", disable),
    _post("enable", enable),
)
