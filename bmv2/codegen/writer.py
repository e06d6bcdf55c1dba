# SPDX-License-Identifier: Apache-2.0
"""Writing Python source: indentation, the variables a function uses, and graphs as nested branches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

NodeT = TypeVar("NodeT", bound=Hashable)

# A graph written as nested branches repeats what two branches share without joining, and Python takes
# 100 levels of indentation; past these it is written flat, with a variable that says which node is next.
_NESTED_LIMIT = 2000
_DEPTH_LIMIT = 40


class Writer:
    """Lines of one function, and which per-packet variables it loads and stores."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.loads: set[str] = set()
        self.stores: set[str] = set()
        self._depth = 0

    def line(self, text: str) -> None:
        """Add a line at the present indentation."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under `head:`; an empty block gets `pass`, an empty `else` goes."""
        self.line(head + ":")
        self._depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            if head == "else":
                self.lines.pop()
            else:
                self.line("pass")
        self._depth -= 1

    def load(self, name: str) -> str:
        """Note that the variable is read; returns its name."""
        self.loads.add(name)
        return name

    def store(self, name: str) -> str:
        """Note that the variable is written; returns its name."""
        self.stores.add(name)
        return name


class ControlFlowGraph(Generic[NodeT]):
    """A directed graph without cycles, to be written as code; None is its end."""

    def __init__(
        self,
        first: NodeT | None,
        successors: Callable[[NodeT], Sequence[NodeT | None]],
        variable: str = "node",
    ) -> None:
        """`variable` holds the next node's number where the code is flat: one for each nesting of graphs."""
        self._variable = variable
        self._first = first
        self._successors = successors
        self._order: list[NodeT] = []
        self._sort()
        self._joins = self._find_joins()

    def _sort(self) -> None:
        """Topological order, by depth-first search without recursion."""
        seen: set[NodeT] = set()
        stack: list[tuple[NodeT, bool]] = [] if self._first is None else [(self._first, False)]
        while stack:
            node, left = stack.pop()
            if left:
                self._order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(n, False) for n in self._successors(node) if n is not None and n not in seen]
        self._order.reverse()

    def _find_joins(self) -> dict[NodeT, NodeT | None]:
        """Each node's immediate post-dominator: where all ways from it meet again (None: at the end)."""
        rank: dict[NodeT | None, int] = {node: i for i, node in enumerate(self._order)}
        rank[None] = len(self._order)
        joins: dict[NodeT, NodeT | None] = {}
        for node in reversed(self._order):
            ways = list(self._successors(node))
            meet = ways[0]
            for other in ways[1:]:
                left, right = meet, other
                while left != right:
                    if rank[left] < rank[right]:
                        left = joins[left] if left is not None else None
                    else:
                        right = joins[right] if right is not None else None
                meet = left
            joins[node] = meet
        return joins

    def write(self, writer: Writer, emit: Callable[[NodeT, Callable[[NodeT | None], None]], None]) -> None:
        """Write all nodes; `emit(node, follow)` writes one and calls `follow(next)` at the end of each way.

        A node with one way on need not call `follow`.
        """
        size, depth = self._nested_size()
        if size <= _NESTED_LIMIT and depth <= _DEPTH_LIMIT:
            self._write_nested(emit, self._first, None)
        else:
            self._write_flat(writer, emit)

    def single(self, node: NodeT) -> bool:
        """Whether the node has one way on only."""
        return len(set(self._successors(node))) == 1

    def _nested_size(self) -> tuple[int, int]:
        """Nodes and levels of the graph as nested branches; more than the limits where it is too much."""
        sizes: dict[tuple[NodeT | None, NodeT | None], tuple[int, int]] = {}

        def measure(node: NodeT | None, stop: NodeT | None, level: int) -> tuple[int, int]:
            total, deepest = 0, 0
            while node is not None and node != stop and total <= _NESTED_LIMIT:
                if level > _DEPTH_LIMIT:
                    return total, level
                join = self._joins[node]
                total += 1
                ways = set(self._successors(node))
                if len(ways) > 1:
                    for way in ways:
                        if (way, join) not in sizes:
                            sizes[way, join] = measure(way, join, level + 1)
                        total += sizes[way, join][0]
                        deepest = max(deepest, sizes[way, join][1] + 1)
                node = join
            return total, deepest

        return measure(self._first, None, 0)

    def _write_nested(
        self,
        emit: Callable[[NodeT, Callable[[NodeT | None], None]], None],
        node: NodeT | None,
        stop: NodeT | None,
    ) -> None:
        while node is not None and node != stop:
            join = self._joins[node]

            def follow(way: NodeT | None, join: NodeT | None = join) -> None:
                self._write_nested(emit, way, join)

            emit(node, follow)
            node = join

    def _write_flat(
        self, writer: Writer, emit: Callable[[NodeT, Callable[[NodeT | None], None]], None]
    ) -> None:
        number: dict[NodeT | None, int] = {node: i for i, node in enumerate(self._order)}
        number[None] = -1
        writer.line(f"{self._variable} = 0")
        for node in self._order:
            with writer.block(f"if {self._variable} == {number[node]}"):
                if self.single(node):
                    writer.line(f"{self._variable} = {number[self._successors(node)[0]]}")

                def follow(way: NodeT | None, node: NodeT = node) -> None:
                    if not self.single(node):
                        writer.line(f"{self._variable} = {number[way]}")

                emit(node, follow)
