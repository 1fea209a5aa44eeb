"""Runs a program and measures it: `python launcher.py REPORT PROGRAM …` writes what it took.

It is a small process of its own, because the kernel counts the memory of the process that starts a program as memory
of the program, until that has replaced it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(report: str, *command: str) -> None:
    """Run the command; the report has seconds, seconds of CPU, the exit status, and bytes of memory at most."""
    began = time.monotonic()
    process = subprocess.Popen(command)
    _, ended, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended)
    seconds = time.monotonic() - began
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    Path(report).write_text(f"{seconds} {cpu} {process.returncode} {memory}", encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
