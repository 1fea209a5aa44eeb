"""Makes `benchmarks` importable, which is not installed. The checkout itself stays off the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "benchmarks"


def make_importable() -> None:
    """Import the package from the checkout, unless it is imported already."""
    if "benchmarks" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "benchmarks", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["benchmarks"] = package
    spec.loader.exec_module(package)
