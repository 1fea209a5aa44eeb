"""Import circles: files that import each other, directly or through others."""

from __future__ import annotations

from benchmarks.structure.sources import Module, Sources, imports


def circles(sources: Sources, *, typing: bool = True) -> list[list[str]]:
    """Each circle's modules, the largest circle first; `typing`: imports under TYPE_CHECKING count."""
    graph = {name: _imported(sources, module, typing=typing) for name, module in sources.modules.items()}
    found = [sorted(group) for group in _components(graph) if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group))


def _imported(sources: Sources, module: Module, *, typing: bool) -> set[str]:
    """The modules that a module names in its imports, without the packages that these lie in."""
    found = set()
    for target, name, _ in imports(module, typing=typing):
        inner = f"{target}.{name}"
        found.add(inner if inner in sources.modules else target)
    return (found & sources.modules.keys()) - {module.name}


def _components(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other."""
    reach = {node: _reachable(graph, node) for node in graph}
    groups, left = [], set(graph)
    while left:
        node = left.pop()
        group = {other for other in reach[node] if node in reach[other]} | {node}
        left -= group
        groups.append(group)
    return groups


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found, pending = set[str](), [start]
    while pending:
        for target in graph[pending.pop()] - found:
            found.add(target)
            pending.append(target)
    return found
