"""Install the agents into a folder: `python tests/agents/install.py FOLDER`. 1.8 GB, two minutes.

aider has an environment of its own, because it pins most of what it needs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("package.json")
AIDER = "aider-chat==0.86.2"
NATIVE = ("@anthropic-ai/claude-code", "opencode-ai")


def install(folder: Path) -> None:
    """Install what `folder` does not have yet."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGES, folder)
    npm = ["npm", "--prefix", str(folder)]
    subprocess.run([*npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], check=True)
    # Only these scripts are run: they put the program of this platform, which is installed, in its place.
    subprocess.run([*npm, "rebuild", *NATIVE], check=True)
    python = folder / "aider" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "aider")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", AIDER], check=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
