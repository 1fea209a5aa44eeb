"""Sizes of files, and lines of code without docstrings, comments and blank lines."""

from __future__ import annotations

import ast
import io
import tokenize

from benchmarks.structure.sources import Module, Sources, outline

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def longest(sources: Sources) -> tuple[int, Module]:
    """The file with the most lines."""
    return max(((len(module.text.splitlines()), module) for module in sources.modules.values()), key=lambda row: row[0])


def code_lines(module: Module) -> int:
    """Lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(module.tree))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in outline(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines
