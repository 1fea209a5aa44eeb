"""Turns the configuration of LiteLLM's proxy into one of the gateway: TOML, with comments for what has no counterpart.

References to the environment stay references. A secret that stands in the file itself is never repeated: a variable is
named instead, which the operator has to set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.errors import InvalidValue
from gateway.setup.litellm_models import Target, deployments, read_target
from gateway.setup.toml_text import Section, comment_lines, write_sections

STRATEGIES = {
    "simple-shuffle": "weighted",
    "least-busy": "least_busy",
    "latency-based-routing": "least_latency",
}
MOST_RETRIES = 2
#: Settings that are read here; all others are named in a comment.
READ = {
    "router_settings": {
        "fallbacks",
        "default_fallbacks",
        "model_group_alias",
        "routing_strategy",
        "num_retries",
        "timeout",
    },
    "litellm_settings": {"fallbacks", "default_fallbacks", "num_retries", "request_timeout"},
}
ELSEWHERE = {
    "general_settings": "its keys and database are made anew: see `gateway keys` and [database]",
    "environment_variables": "set them in the environment of the gateway",
}


class Converted(Struct):
    """The result: the TOML text, the variables that have to be set, and the number of models."""

    toml: str
    variables: list[str]
    models: int
    comments: int  # settings without a counterpart


class _Common(Struct):
    """What holds for all models."""

    fallbacks: dict[str, list[str]]
    default_fallbacks: list[str]
    aliases: dict[str, list[str]]  # by model
    retries: int | None
    timeout: float | None
    strategy: str
    comments: list[str]


def convert(document: Any) -> Converted:
    """Convert the document of a config.yaml. InvalidValue if it is none."""
    if not isinstance(document, Mapping) or not isinstance(document.get("model_list"), list):
        raise InvalidValue("this is no configuration of LiteLLM: it has no model_list")
    common = _common(document)
    providers: dict[str, Section] = {}
    models: dict[str, list[Target]] = {}
    for number, deployment in enumerate(deployments(document["model_list"]), 1):
        target = read_target(deployment, number, providers)
        models.setdefault(target.name, []).append(target)
    served = {name for name, targets in models.items() if any(target.provider for target in targets)}
    sections = [*providers.values(), *(_model(name, targets, common, served) for name, targets in models.items())]
    head = comment_lines(common.comments)
    text = "\n".join(["# Made from a configuration of LiteLLM. Run `gateway check` before you use it.", *head, ""])
    comments = len(common.comments) + sum(len(section.comments) for section in sections)
    found = text + "\n" + write_sections(sections)
    return Converted(found, sorted(set(re.findall(r'"env:([A-Za-z_][A-Za-z0-9_]*)"', found))), len(served), comments)


def _common(document: Mapping[str, Any]) -> _Common:
    router, litellm = _table(document, "router_settings"), _table(document, "litellm_settings")
    comments = [
        f"{section}.{name} has no counterpart"
        for section, known in READ.items()
        for name in _table(document, section)
        if name not in known
    ]
    comments += [f"{section}: {advice}" for section, advice in ELSEWHERE.items() if section in document]
    known_sections = {"model_list", *READ, *ELSEWHERE}
    comments += [f"{section} has no counterpart" for section in document if section not in known_sections]
    retries = router.get("num_retries", litellm.get("num_retries"))
    if isinstance(retries, int) and retries > MOST_RETRIES:
        comments.append(f"num_retries = {retries}: the gateway makes at most {MOST_RETRIES} attempts after the first")
        retries = MOST_RETRIES
    strategy = str(router.get("routing_strategy", "simple-shuffle"))
    if strategy not in STRATEGIES:
        comments.append(f"routing_strategy = {strategy} has no counterpart; targets are chosen by weight")
    timeout = router.get("timeout", litellm.get("request_timeout"))
    aliases: dict[str, list[str]] = {}
    for alias, target in _table(router, "model_group_alias").items():
        name = target.get("model") if isinstance(target, Mapping) else target
        aliases.setdefault(str(name), []).append(str(alias))
    return _Common(
        _fallbacks(router) | _fallbacks(litellm),
        _names(router.get("default_fallbacks") or litellm.get("default_fallbacks")),
        aliases,
        retries if isinstance(retries, int) else None,
        float(timeout) if isinstance(timeout, int | float) else None,
        STRATEGIES.get(strategy, "weighted"),
        comments,
    )


def _model(name: str, targets: list[Target], common: _Common, served: set[str]) -> Section:
    section = Section(["models", name])
    usable = [target for target in targets if target.provider]
    for target in targets:
        section.comments += target.comments
    if not usable:
        section.is_commented = True
        return section
    if len(usable) == 1:
        section.values |= {"provider": usable[0].provider, "model": usable[0].model}
    else:
        section.values["targets"] = [
            {"provider": target.provider, "model": target.model}
            | ({"weight": target.weight} if target.weight != 1 else {})
            for target in usable
        ]
        if common.strategy != "weighted":
            section.values["strategy"] = common.strategy
    if aliases := common.aliases.get(name):
        section.values["aliases"] = aliases
    wanted = common.fallbacks.get(name) or [other for other in common.default_fallbacks if other != name]
    section.comments += [f"fallback {other}: there is no such model" for other in wanted if other not in served]
    if fallbacks := [other for other in wanted if other in served]:
        section.values["fallbacks"] = fallbacks
    for target in reversed(usable):
        section.values |= target.settings
    if any(target.settings.get("price") != usable[0].settings.get("price") for target in usable[1:]):
        section.comments.append("its deployments have different prices; this is the one of the first")
    if "price" not in section.values:
        section.comments.append(
            "no price is known: set price, or free = true; without one the gateway refuses the model"
        )
    if common.timeout is not None:
        section.values.setdefault("total_timeout", common.timeout)
    if common.retries is not None:
        section.values["retries"] = common.retries
    return section


def _fallbacks(settings: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in settings.get("fallbacks") or []:
        if isinstance(entry, Mapping):
            found |= {str(name): _names(others) for name, others in entry.items()}
    return found


def _names(value: Any) -> list[str]:
    """The names in a list; LiteLLM also takes tables with settings there."""
    return [str(name.get("model")) if isinstance(name, Mapping) else str(name) for name in value or []]


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
