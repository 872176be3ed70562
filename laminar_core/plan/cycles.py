"""Vertices on common cycles of a graph, which can end only together."""

from collections.abc import Iterable, Mapping, Sequence


def cycles(vertices: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return, per vertex on a cycle, the first vertex that shares a cycle with it.

    >>> cycles(["in", "head", "body", "out"],
    ...        [("in", "head"), ("head", "body"), ("body", "head"), ("body", "out")])
    {'head': 'head', 'body': 'head'}
    """
    following: dict[str, set[str]] = {vertex: set() for vertex in vertices}
    for upstream, downstream in edges:
        following[upstream].add(downstream)
    reached = {vertex: _reachable(vertex, following) for vertex in vertices}
    found: dict[str, str] = {}
    for vertex in vertices:
        if vertex in reached[vertex]:
            together = (v for v in vertices if v in reached[vertex] and vertex in reached[v])
            found[vertex] = next(together)
    return found


def _reachable(first: str, following: Mapping[str, set[str]]) -> set[str]:
    """Every vertex that a path of at least one edge leads to."""
    seen: set[str] = set()
    todo = list(following[first])
    while todo:
        vertex = todo.pop()
        if vertex not in seen:
            seen.add(vertex)
            todo.extend(following[vertex])
    return seen
