"""The figures of a tree's structure, each with its definition and the names behind its number."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.structure.circles import circles
from benchmarks.structure.classes import Classes
from benchmarks.structure.executed import Executed
from benchmarks.structure.files import documentation, files_of_a_key_setting, flattest, repeated_names
from benchmarks.structure.lines import code_lines, longest
from benchmarks.structure.money import MoneyRecords
from benchmarks.structure.sources import Sources

MOST_HANDLERS = 3  # shown beside the largest


class Figure(Struct, frozen=True):
    """One number of a tree."""

    title: str
    value: int
    definition: str
    names: Sequence[str] = ()  # what was counted, or where the largest is
    aside: Sequence[str] = ()  # what was seen and not counted


def static_figures(checkout: Checkout) -> list[Figure]:
    """What is read from the syntax trees."""
    sources = Sources(checkout)
    classes = Classes(sources)
    return [
        _money(classes),
        *_inheritance(classes),
        _top_modules(sources),
        _flat_modules(sources),
        _files(sources),
        _longest_file(sources),
        _code_lines(sources),
        *_circles(sources),
        _counted(
            "class names that occur more than once",
            repeated_names(classes),
            "names of classes at the top of two modules or more of gateway/",
        ),
        _counted(
            "files with the key setting max_cost",
            files_of_a_key_setting(checkout),
            "files of gateway/ in which it is written, as `max_cost` or `max-cost`",
        ),
        *_documentation(checkout),
    ]


def executed_figures(found: Executed, checkout: Checkout) -> list[Figure]:
    """What one warm streamed chat executes."""
    classes = Classes(Sources(checkout))
    records = MoneyRecords(classes).on_path(found.functions.always)
    return [
        Figure(
            "Python files executed by a warm streamed chat",
            len(found.python.always),
            "files of gateway/ and providers/ of which a function runs in the worker between the request's first byte "
            "and the access line, in each of 15 chats on a kept-alive connection after 20 others; provider `openai`",
            sorted(found.python.always),
            sorted(found.python.sometimes),
        ),
        Figure(
            "Lua files executed by a warm streamed chat",
            len(found.lua.always),
            "Lua files that are part of a script which the store runs meanwhile, in each of 15 such chats",
            sorted(found.lua.always),
            sorted(found.lua.sometimes),
        ),
        Figure(
            "Python functions that a warm streamed chat runs",
            len(found.functions.always),
            "functions of the gateway and of libraries that run in the worker meanwhile, in each of 15 such chats",
        ),
        Figure(
            "record types for one call's money on the path of a chat",
            len(records),
            "those of the record types for one call's money that a function names which a warm streamed chat runs, or "
            "of which a method runs",
            [f"{info.name} ({classes.sources.shown(info.module)})" for info in records],
        ),
    ]


def key_change_figure(commands: Sequence[str]) -> Figure:
    """What a change of one key over the admin API asks of the store."""
    return _counted(
        "store commands of a changed key",
        commands,
        "commands that clients send to the store while `PATCH /admin/v1/keys/{key}` changes two settings, without "
        "those of scripts and without those that ask whether the change is on the disk",
    )


def _counted(title: str, names: Sequence[str], definition: str) -> Figure:
    """The figure whose value is the number of these names."""
    return Figure(title, len(names), definition, names)


def _money(classes: Classes) -> Figure:
    found = MoneyRecords(classes).find()
    return Figure(
        "record types for one call's money",
        len(found),
        "records of gateway/ (Structs, dataclasses, plain classes that only store their parameters; no wire types, no "
        "settings) with a field for an amount, a hold, a cost or a usage that describe one call; the whole rule "
        "is in benchmarks/structure/money.py",
        [f"{info.name} ({classes.sources.shown(info.module)})" for info in found],
    )


def _inheritance(classes: Classes) -> list[Figure]:
    deepest, handlers = classes.deepest(), classes.handlers()
    return [
        Figure(
            "deepest inheritance",
            classes.depth(deepest) if deepest else 0,
            "steps from a class of gateway/ to its furthest ancestor that is a class of the project",
            [deepest.name] if deepest else [],
        ),
        Figure(
            "methods of the largest handler",
            len(classes.methods(handlers[0])) if handlers else 0,
            "different names of methods and properties, own and inherited from project classes, of a class of gateway/ "
            "that descends from Tornado's HTTPMessageDelegate or RequestHandler",
            [f"{info.name} {len(classes.methods(info))}" for info in handlers[:MOST_HANDLERS]],
        ),
    ]


def _top_modules(sources: Sources) -> Figure:
    folder = sources.checkout.folders()["gateway"]
    found = [module for module in sources.modules.values() if module.path.parent == folder]
    return Figure(
        "modules directly in gateway/", len(found), "Python files in the folder itself, `__init__` among them"
    )


def _flat_modules(sources: Sources) -> Figure:
    package = flattest(sources)
    return Figure(
        "modules in the flattest package",
        package.modules,
        "Python files directly in one folder of gateway/, `__init__` not among them",
        [package.name],
    )


def _files(sources: Sources) -> Figure:
    return Figure("files", len(sources.modules), "Python files of gateway/ and providers/")


def _longest_file(sources: Sources) -> Figure:
    lines, module = longest(sources)
    return Figure("largest file, lines", lines, "of gateway/ and providers/, all its lines", [sources.shown(module)])


def _code_lines(sources: Sources) -> Figure:
    return Figure(
        "lines of code",
        sum(code_lines(module) for module in sources.modules.values()),
        "lines of gateway/ and providers/ that hold code: no docstrings, comments, blank lines",
    )


def _circles(sources: Sources) -> list[Figure]:
    found = circles(sources)
    return [
        Figure(
            "files in the largest import circle",
            len(found[0]) if found else 0,
            "files that import each other, directly or through others; imports for type checkers count",
            found[0] if found else [],
        ),
        Figure(
            "files in any import circle",
            sum(len(circle) for circle in found),
            "the same, all circles together",
            [", ".join(circle) for circle in found],
        ),
        Figure(
            "files in import circles at run time",
            sum(len(circle) for circle in circles(sources, typing=False)),
            "the same without imports for type checkers",
        ),
    ]


def _documentation(checkout: Checkout) -> list[Figure]:
    size, names = documentation(checkout)
    return [
        Figure("bytes of documentation", size, "of README.md and of docs/, without the generated docs/claims.md"),
        Figure("bytes of test names in it", names, "names and paths of tests"),
    ]
