"""Each figure of a tree's structure, on trees that are made up for it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.checkout import Checkout
from benchmarks.structure.circles import circles
from benchmarks.structure.classes import Classes
from benchmarks.structure.command import table_of
from benchmarks.structure.figures import Figure, static_figures
from benchmarks.structure.money import MoneyRecords
from benchmarks.structure.sources import Sources


def tree(folder: Path, **files: str) -> Checkout:
    """A checkout of these files: `gateway__api__chat` is gateway/api/chat.py, `gateway____init` its `__init__.py`."""
    for name, text in {"gateway____init": "", **files}.items():
        parts = name.removesuffix("____init").split("__") + ["__init__"] * name.endswith("____init")
        path = folder.joinpath(*parts).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return Checkout(folder)


def figure(checkout: Checkout, title: str) -> Figure:
    return next(found for found in static_figures(checkout) if found.title == title)


def records(checkout: Checkout) -> list[str]:
    return [info.name for info in MoneyRecords(Classes(Sources(checkout))).find()]


# Inheritance and handlers --------------------------------------------------------------------------------------------

HANDLERS = {
    "gateway__api__base": """
        from tornado import httputil
        class Base(httputil.HTTPMessageDelegate):
            def headers_received(self): ...
            def finish(self): ...
            @property
            def key(self): ...
    """,
    "gateway__api____init": "from gateway.api.base import Base",
    "gateway__api__chat": """
        from typing import Generic, TypeVar
        from gateway.api import Base as Root
        T = TypeVar("T")
        class Middle(Root, Generic[T]):
            def decode(self): ...
        class Chat(Middle[int]):
            def finish(self): ...
            async def serve(self): ...
    """,
}


def test_inheritance_counts_steps_over_project_classes_through_aliases_and_reexports(tmp_path: Path) -> None:
    found = figure(tree(tmp_path, **HANDLERS), "deepest inheritance")
    assert (found.value, found.names) == (2, ["Chat"])


def test_classes_of_providers_do_not_count_as_the_deepest(tmp_path: Path) -> None:
    deep = "class A: ...\nclass B(A): ...\nclass C(B): ...\nclass D(C): ..."
    assert figure(tree(tmp_path, **HANDLERS, providers__deep=deep), "deepest inheritance").value == 2


def test_handlers_methods_are_counted_once_by_name_with_those_inherited(tmp_path: Path) -> None:
    found = figure(tree(tmp_path, **HANDLERS), "methods of the largest handler")
    assert found.value == 5  # headers_received, finish, key, decode, serve
    assert found.names[0] == "Chat 5"


def test_class_not_called_by_tornado_is_not_a_handler(tmp_path: Path) -> None:
    other = "class Parser:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(20))
    checkout = tree(tmp_path, **HANDLERS, gateway__other=other)
    assert figure(checkout, "methods of the largest handler").value == 5


def test_request_handler_of_tornado_is_a_handler(tmp_path: Path) -> None:
    side = "from tornado.web import RequestHandler\nclass Side(RequestHandler):\n    def get(self): ...\n"
    assert figure(tree(tmp_path, gateway__side=side), "methods of the largest handler").names == ["Side 1"]


# Files and lines -----------------------------------------------------------------------------------------------------


def test_modules_directly_in_the_gateway_exclude_those_of_its_packages(tmp_path: Path) -> None:
    checkout = tree(tmp_path, gateway__one="", gateway__api____init="", gateway__api__two="", providers__three="")
    assert figure(checkout, "modules directly in gateway/").value == 2  # __init__ and one


def test_largest_file_is_found_in_the_providers_too_by_all_its_lines(tmp_path: Path) -> None:
    checkout = tree(tmp_path, gateway__one="a = 1\n", providers__long="# a comment\n\n\nb = 2\n")
    found = figure(checkout, "largest file, lines")
    assert (found.value, found.names) == (4, ["providers/long.py"])


def test_lines_of_code_exclude_docstrings_comments_and_blank_lines(tmp_path: Path) -> None:
    text = '''\
        """A docstring
        of two lines."""

        # A comment.
        import os  # beside code

        NAMES = (
            "one",

            # Why.
            "two",
        )

        class Thing:
            """One."""

            def method(self) -> str:
                """Several

                lines.
                """
                return """a text
                of two lines"""
    '''
    # import, four of NAMES, class, def, two of return
    assert figure(tree(tmp_path, providers__one=text), "lines of code").value == 9


# Import circles ------------------------------------------------------------------------------------------------------

TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


def test_circle_through_a_type_only_import_counts(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__a="from gateway.b import B\nA = 1",
        gateway__b=f"{TYPING}from gateway.c import C\nB = 1",
        gateway__c="import gateway.a\nC = 1",
        gateway__d="from gateway.a import A",
    )
    assert figure(checkout, "files in the largest import circle").names == ["gateway.a", "gateway.b", "gateway.c"]
    assert figure(checkout, "files in import circles at run time").value == 0


def test_circle_through_an_import_inside_a_function_counts_at_run_time(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path, gateway__a="from gateway import b", gateway__b="def late():\n    from gateway.a import A\n"
    )
    assert figure(checkout, "files in import circles at run time").value == 2


def test_relative_imports_close_a_circle(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        providers__openai____init="from .chat import Chat",
        providers__openai__chat="from . import Server\nfrom ..shared import X",
        providers__shared="",
    )
    assert circles(Sources(checkout)) == [["gateway_providers.openai", "gateway_providers.openai.chat"]]


def test_two_circles_are_separate_and_added_up(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__a="import gateway.b",
        gateway__b="import gateway.a",
        gateway__c="import gateway.d",
        gateway__d="import gateway.e",
        gateway__e="import gateway.c",
    )
    assert figure(checkout, "files in the largest import circle").value == 3
    assert figure(checkout, "files in any import circle").value == 5


# Money records -------------------------------------------------------------------------------------------------------

STRUCT = "from msgspec import Struct\n"


def test_class_with_a_request_id_and_an_amount_is_a_money_record(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__money=STRUCT + "class Hold(Struct):\n    request_id: str\n    amount: int\n",
        gateway__other=STRUCT + "class Account(Struct):\n    name: str\n    balance: int\n",
    )
    assert records(checkout) == ["Hold"]


def test_dataclasses_and_plain_classes_that_store_their_parameters_are_money_records(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__quote="""
            from dataclasses import dataclass
            @dataclass(frozen=True)
            class Quote:
                request: object
                worst_cost: int
            class Terms:
                def __init__(self, request: object, hold: int, *, tokens: int | None = None) -> None:
                    self.request = request
                    self.hold = hold
                    self.tokens = hold if tokens is None else tokens
            class Relay:
                def __init__(self, request: object, hold: int) -> None:
                    self._request = request
                    self._hold = hold
        """,
    )
    assert records(checkout) == ["Quote", "Terms"]


def test_amounts_as_text_and_switches_are_not_money(tmp_path: Path) -> None:
    fields = "    request_id: str\n    cost: str = ''\n    hold: bool = False\n"
    assert records(tree(tmp_path, gateway__log=STRUCT + "class Line(Struct):\n" + fields)) == []


def test_wire_types_settings_and_providers_have_no_money_records(tmp_path: Path) -> None:
    text = STRUCT + "class Hold(Struct):\n    request_id: str\n    amount: int\n"
    checkout = tree(tmp_path, gateway__schemas__chat=text, gateway__config__settings=text, providers__openai=text)
    assert records(checkout) == []


def test_nested_money_record_and_its_container_both_count(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__a=STRUCT
        + "class Usage(Struct):\n    provider_cost: int | None\nclass Shape(Struct):\n    width: int\n",
        gateway__b=STRUCT
        + "import gateway.a as parts\n"
        + "class Bill(Struct):\n    counted: 'parts.Usage'\n    shape: parts.Shape\n"
        + "class Tab(Struct):\n    rid: str\n    bill: Bill | None = None\n",
    )
    assert records(checkout) == ["Bill", "Tab", "Usage"]


def test_record_passed_with_a_request_record_counts_unless_it_sums_several(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__records=STRUCT
        + "class Hold(Struct):\n    rid: str\n    amount: int\n"
        + "class Outcome(Struct):\n    amount: int\n"
        + "class Settled(Struct):\n    amount: int\n"
        + "class Sum(Struct):\n    amount: int\n    by_key: dict[str, int]\n"
        + "class Credited(Struct):\n    amount: int\n",
        gateway__ledger="""
            from gateway.records import Credited, Hold, Outcome, Settled, Sum
            class Ledger:
                async def settle(self, hold: Hold, outcome: Outcome | None) -> Settled: ...
                def add(self, hold: Hold, total: Sum) -> None: ...
                def credit(self, account: str) -> Credited: ...
        """,
    )
    assert records(checkout) == ["Hold", "Outcome", "Settled"]


# Files ---------------------------------------------------------------------------------------------------------------


def test_class_names_of_two_modules_of_the_engine_are_repeated(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__a="class Reply: ...\nclass Own:\n    class Inner: ...\n",
        gateway__b="class Reply: ...\nclass Other:\n    class Inner: ...\n",
        providers__c="class Own: ...\n",
    )
    found = figure(checkout, "class names that occur more than once")
    assert (found.value, found.names) == (1, ["Reply"])


def test_files_of_a_key_setting_are_those_with_its_field_or_its_option(tmp_path: Path) -> None:
    checkout = tree(
        tmp_path,
        gateway__a="max_cost = 1\n",
        gateway__b='"--max-cost"\n',
        gateway__c="max_costs, not_max_cost = 1, 2\n",
    )
    (tmp_path / "gateway" / "key.html").write_text("{{ key.max_cost }}")
    found = figure(checkout, "files with the key setting max_cost")
    assert found.names == ["gateway/a.py", "gateway/b.py", "gateway/key.html"]


def test_flattest_package_counts_its_modules_without_init(tmp_path: Path) -> None:
    checkout = tree(tmp_path, gateway__x____init="", gateway__x__a="", gateway__x__b="", gateway__x__deep__c="")
    found = figure(checkout, "modules in the flattest package")
    assert (found.value, found.names) == (2, ["x"])


def test_names_of_tests_in_the_documentation_are_counted_in_bytes(tmp_path: Path) -> None:
    checkout = tree(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("held by tests/a/test_b.py::test_c\n")
    (tmp_path / "docs" / "prices.md").write_text("and test_d.\n")
    (tmp_path / "docs" / "claims.md").write_text("test_generated\n")
    assert figure(checkout, "bytes of documentation").value == 34 + 12
    assert figure(checkout, "bytes of test names in it").value == len("tests/a/test_b.py::test_c") + len("test_d")


# The table -----------------------------------------------------------------------------------------------------------


def test_two_trees_are_printed_as_before_and_after(tmp_path: Path) -> None:
    before = static_figures(tree(tmp_path / "before", **HANDLERS))
    after = static_figures(tree(tmp_path / "after", gateway__flat="class A: ..."))
    table = table_of([before, after])
    rows = dict(zip(table.columns[0].cells, table.columns[1].cells, strict=True))
    assert table.columns[1].header == "before → after"
    assert rows["deepest inheritance"] == "2 → 0"
    assert rows["methods of the largest handler"] == "5 → 0"


@pytest.mark.parametrize("folder", ["build", "__pycache__"])
def test_built_files_are_excluded(tmp_path: Path, folder: str) -> None:
    (tmp_path / "gateway" / folder).mkdir(parents=True)
    (tmp_path / "gateway" / folder / "copy.py").write_text("a = 1\n" * 100)
    assert figure(tree(tmp_path), "largest file, lines").value == 0
