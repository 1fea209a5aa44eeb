"""Tables of measured figures inside the documentation, between a comment that says who writes them and its end."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def put(page: Path, name: str, table: str, *, by: str) -> None:
    """Replace what stands in `page` for the table `name`, which `by` writes; ValueError where the page has no room."""
    begin, end = f"<!-- {name}: written by `python -m benchmarks {by}` -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{page.name} has no place for {name}: {begin!r} and {end!r} are missing")
    page.write_text(before + begin + table + end + after, encoding="utf-8")
