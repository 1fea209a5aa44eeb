"""Counting instructions: callgrind's files, differences of windows, stages, and a real process under valgrind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.compiler import build
from benchmarks.fault import BenchFault
from benchmarks.instructions.callgrind import OPTIONS, Count, read_count
from benchmarks.instructions.counting import HEADER, SOURCE, Window, difference
from benchmarks.instructions.stages import MEANINGS, OUTSIDE, STAGES, TABLE, numbered_table
from tests.polling import ENDS_WITHIN

ROOT = Path(__file__).parent.parent.parent

FILE = """\
version: 1
desc: Trigger: Client Request: window-1
events: Ir
summary: 1000

fn=main
0 300
cfn=stage_from_0_to_1
calls=2 0
0 600
cfn=malloc
calls=5 0
0 100
fn=_PyEval_EvalFrameDefault
0 50
cob=libpython
cfn=stage_from_1_to_2
calls=1 0
0 150
cfn=stage_from_2_to_1
calls=1 0
0 40

totals: 1000
"""


def test_stage_has_its_own_instructions_without_those_of_called_stages(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text(FILE)
    assert read_count(file) == Count(1000, {0: 400, 1: 600 - 150 + 40, 2: 150 - 40})


def test_file_without_totals_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text(FILE.partition("totals")[0])
    with pytest.raises(BenchFault, match="no totals"):
        read_count(file)


def test_difference_of_windows_subtracts_the_idle_instructions() -> None:
    idle = Window(Count(1000, {0: 600, 3: 400}), seconds=10.0)
    less, more = Window(Count(700, {0: 300, 1: 400}), 1.0), Window(Count(5950, {0: 850, 1: 4900, 3: 200}), 6.0)
    found = difference(more, less, 50, idle=idle)
    assert found[0] == (850 - 300 - 300) / 50
    assert found[1] == (4900 - 400) / 50
    assert found[3] == 0.0
    assert sum(found.values()) == (5950 - 700 - 500) / 50


# Stages --------------------------------------------------------------------------------------------------------------


def stage(file: str, name: str) -> str:
    """As inside/sitecustomize.py finds it; empty where the caller's stage goes on."""
    for file_pattern, name_pattern, number in numbered_table():
        if re.search(file_pattern, file) and re.search(name_pattern, name):
            return STAGES[number - 1]
    return ""


def test_each_stage_has_a_line_and_a_meaning() -> None:
    assert {line[2] for line in TABLE} == set(STAGES)
    assert set(MEANINGS) == {*STAGES, OUTSIDE}


def test_number_of_stages_is_at_most_that_of_the_extension_functions() -> None:
    most = re.search(r"MOST_STAGES = (\d+)", SOURCE.read_text())
    assert most is not None
    assert len(STAGES) <= int(most[1])


@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        ("gateway/accounts/authenticator.py", "Authenticator.cached", "authenticate"),
        ("gateway/accounts/authenticator.py", "Authenticator.cached", "authenticate"),
        ("gateway/api/endpoints/chat.py", "ChatHandler.price", "quote"),
        ("gateway/api/endpoints/chat.py", "ChatEndpoint.quote", "quote"),
        ("gateway/catalog.py", "Catalog.find", "resolve"),
        ("gateway/catalog.py", "Model.price", ""),
        ("gateway/ledger/admission.py", "Admission.admit", "admit"),
        ("gateway/ledger/settlement_writer.py", "SettlementWriter.book", "settle"),
        ("gateway/ledger/settlement_writer.py", "SettlementWriter.write", "settle"),
        ("gateway/ledger/script_batcher.py", "Batches.put", "store client"),
        ("gateway/routing/dispatcher.py", "Dispatcher.call", "dispatch"),
        ("gateway/routing/circuit_sync.py", "Sharing.run", "background"),
        ("gateway_providers/openai/chat.py", "OpenAIChat.chat", "dispatch"),
        ("gateway/http_client/pool.py", "Origin.take", "dispatch"),
        ("gateway/http_client/pool.py", "Origin.take", "dispatch"),
        ("gateway/http_server/connection.py", "Connection.buffer_updated", "parse"),
        ("gateway/http_server/connection.py", "Connection.send_soon", "encode"),
        ("gateway/http_server/connection.py", "Connection.buffer_updated", "parse"),
        ("gateway/schemas/chat_rules.py", "check_chat", "parse"),
        ("gateway/encoders/chat.py", "StreamEncoder.feed", "encode"),
        ("gateway/inference/event_stream.py", "EventStream.send", "encode"),
        ("gateway/inference/pipeline.py", "run", "pipeline"),
        ("gateway/api/inference_handler.py", "InferenceHandler.access_line", "log"),
        ("gateway/api/handler.py", "BaseHandler.ended", "log"),
        ("gateway/api/handler.py", "BaseHandler.log_access", "log"),
        ("gateway/api/inference_handler.py", "InferenceHandler.settle", "settle"),
        ("gateway/api/inference_handler.py", "InferenceHandler.admit", "admit"),
        ("gateway/plugins/text_fast_path.py", "LanedStream.__anext__", "dispatch"),
        ("gateway/plugins/text_fast_path.py", "LanedStream.__anext__", "dispatch"),
        ("gateway/inference/text_fast_path.py", "TextRelay._take", "encode"),
        ("gateway/inference/text_fast_path.py", "TextRelay._take", "encode"),
        ("gateway/inference/call.py", "Call.cost", ""),
        ("gateway/inference/call.py", "Call.cost", ""),
        ("gateway/billing/price.py", "Price.cost", ""),
        ("asyncio/locks.py", "Event.set", ""),
    ],
)
def test_function_belongs_to_its_stage_in_either_layout(file: str, name: str, expected: str) -> None:
    assert stage(f"packages/{file}", name) == expected


# A real process ------------------------------------------------------------------------------------------------------

PROGRAM = """
    import sys
    sys.path.insert(0, "{folder}")
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    from importlib.util import module_from_spec
    loader = ExtensionFileLoader("bench_callgrind", "{library}")
    counter = module_from_spec(ModuleSpec("bench_callgrind", loader, origin="{library}"))
    import one, two
    counter.stages(lambda file, name: 1 if file.endswith("one.py") else 2 if file.endswith("two.py") else 0)
    one.work(two, 3)
    counter.begin()
    counter.zero()
    one.work(two, int(sys.argv[1]))
    counter.dump("done")
"""
ONE = """
    def work(two, times):
        for _ in range(times):
            two.spend(inner)

    def inner():
        return sum(range(100))
"""
TWO = """
    def spend(callback):
        callback()
        try:
            fail()
        except ValueError:
            return sum(range(10_000))

    def fail():
        raise ValueError
"""


def counted(folder: Path, library: Path, times: int) -> Count:
    program = folder / "program.py"
    program.write_text(dedent(PROGRAM).format(folder=folder, library=library))
    command = ["valgrind", *OPTIONS, f"--callgrind-out-file={folder}/out{times}.%p", sys.executable, str(program)]
    subprocess.run([*command, str(times)], check=True, capture_output=True, timeout=ENDS_WITHIN)
    (file,) = folder.glob(f"out{times}.*.1")
    return read_count(file)


@pytest.mark.skipif(
    not (
        shutil.which("valgrind")
        and any((Path(base) / HEADER).exists() for base in ("/usr/include", "/usr/local/include"))
    ),
    reason="no valgrind",
)
@pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")), reason="no C compiler"
)
def test_instructions_of_a_process_are_attributed_to_the_stage_of_the_function(tmp_path: Path) -> None:
    library = build(SOURCE, "-shared", "-fPIC", "-Wno-unused-parameter", f"-I{sysconfig.get_paths()['include']}")
    (tmp_path / "one.py").write_text(dedent(ONE))
    (tmp_path / "two.py").write_text(dedent(TWO))
    few, many = counted(tmp_path, library, 10), counted(tmp_path, library, 30)
    one, two = (many.stages[number] - few.stages[number] for number in (1, 2))
    # 20 sums of 10,000 numbers against 20 of 100, called from inside one another.
    assert two > 20 * 10_000 * 5
    assert 0 < one < two / 10
    assert sum(many.stages.values()) == many.total
    outside = many.stages[0] - few.stages[0]
    assert abs(outside) < two / 100
