"""What a probe sees in a serving process, on a gateway that is made up for it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.checkout import HERE, Checkout
from benchmarks.structure.classes import Classes
from benchmarks.structure.executed import executed
from benchmarks.structure.money import MoneyRecords
from benchmarks.structure.sources import Sources

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the bench pins cores and reads /proc"),
    pytest.mark.skipif(
        not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")), reason="no C compiler"
    ),
]

# A gateway as the bench starts one: two commands that make an account and a key, and a server with an access log.
GATEWAY = {
    "gateway/__init__.py": "",
    "gateway/__main__.py": """
        import sys
        if sys.argv[1] == "serve":
            from gateway.serving import serve
            serve(sys.argv[sys.argv.index("--config") + 1])
        else:
            print("key")
    """,
    "gateway/serving.py": """
        import itertools, os, tomllib
        from http.server import BaseHTTPRequestHandler, HTTPServer
        from pathlib import Path
        import redis
        from gateway import at_start, never
        from gateway.scripts import Scripts
        from gateway_providers import vendor

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                number = next(self.server.numbers)
                self.rfile.read(int(self.headers["Content-Length"]))
                if number % 2 == 0:
                    import gateway.every_second
                    gateway.every_second.run()
                answer = vendor.answer()
                self.server.scripts.settle()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("x-request-id", f"req_{number}_")
                self.end_headers()
                self.wfile.write(answer)
                os.write(2, f"req_{number}_\\n".encode())

            def log_message(self, *arguments):
                pass

        def serve(file):
            config = tomllib.loads(Path(file).read_text())
            at_start.run()
            server = HTTPServer(("127.0.0.1", config["server"]["port"]), Handler)
            server.numbers = itertools.count()
            server.scripts = Scripts(redis.Redis(unix_socket_path=config["store"]["url"].removeprefix("unix://")))
            server.serve_forever()
    """,
    "gateway/scripts.py": """
        from pathlib import Path

        class Scripts:
            def __init__(self, client):
                read = lambda name: (Path(__file__).parent / "lua" / f"{name}.lua").read_text()
                self.script = client.register_script(read("shared") + read("settle"))
                self.other = client.register_script(read("unused"))
                self.other()

            def settle(self):
                self.script()
    """,
    "gateway/at_start.py": "def run(): ...",
    "gateway/every_second.py": "def run(): ...",
    "gateway/never.py": "def run(): ...",
    "gateway/lua/shared.lua": "local function one() return 1 end\n",
    "gateway/lua/settle.lua": "return one()\n",
    "gateway/lua/unused.lua": "return 2\n",
    "providers/__init__.py": "",
    "providers/vendor.py": "def answer(): return b'{}'",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for name, text in GATEWAY.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return Checkout(tmp_path)


def test_only_files_whose_functions_run_during_each_chat_are_executed(checkout: Checkout) -> None:
    found = executed(checkout)
    assert found.python.always == {"gateway/serving.py", "gateway/scripts.py", "providers/vendor.py"}
    assert found.python.sometimes == {"gateway/every_second.py"}
    assert found.lua.always == {"gateway/lua/shared.lua", "gateway/lua/settle.lua"}
    assert not found.lua.sometimes
    assert any(name.endswith("providers/vendor.py: answer") for name in found.functions.always)
    assert not any(name.endswith("gateway/at_start.py: run") for name in found.functions.always)


FUNCTIONS = 395  # in the thread of the loop; a pass-through of starlette, uvicorn and httpx runs 355
RECORDS = 8


@pytest.mark.usefixtures("no_collector")  # see tests/test_layers.py
def test_warm_streamed_chat_runs_few_functions_with_few_records_of_money() -> None:
    checkout = Checkout(HERE)
    found = executed(checkout)
    records = MoneyRecords(Classes(Sources(checkout))).on_path(found.functions.always)
    assert len(found.functions.always) <= FUNCTIONS
    assert 3 <= len(records) <= RECORDS, [info.name for info in records]
