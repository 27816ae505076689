"""Pipelined binary trees for all-reduce: one tree, and two trees at once, where no rank has children in both."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.theory.schedules.core import Move, Schedule, check_ranks, check_segments, in_sequence, without_empty_steps

SEGMENTS = 8


@dataclass(frozen=True)
class Tree:
    """A rooted tree: each rank's parent (None for the root) and depth."""

    parent: tuple[int | None, ...]
    depth: tuple[int, ...]

    @property
    def height(self) -> int:
        """The edges from the root to the deepest leaf."""
        return max(self.depth)


def binary_tree_all_reduce(ranks: int, root: int = 0, segments: int = SEGMENTS) -> Schedule:
    """All-reduce over one binary tree: k segments are added on their way up to `root`, then sent down again.

    A rank exchanges with its left and its right child in turns, so that it receives two segments for each one that it
    sends up: about 2nb up and 2nb down, and O(lg p)a. The exact price is in `cost.FORMULAS`.

    >>> schedules.binary_tree_all_reduce(7, segments=4)
    <Schedule binary tree all_reduce: 7 ranks, 4 chunks, 20 steps, 48 messages>
    """
    check_ranks(ranks, root)
    check_segments(segments)
    parents = [None if i == 0 else (i - 1) // 2 for i in range(ranks)]
    names = [(root + i) % ranks for i in range(ranks)]
    parent: list[int | None] = [None] * ranks
    for i, up in enumerate(parents):
        parent[names[i]] = None if up is None else names[up]
    tree = _tree(parent)
    colours = {names[i]: (i + 1) % 2 for i in range(1, ranks)}
    moves = _up_and_down([(tree, colours, tuple(range(segments)))])
    return Schedule("all_reduce", "binary tree", ranks, segments, tuple(moves), root, {"segments": segments})


def double_binary_tree_all_reduce(ranks: int, segments: int = SEGMENTS) -> Schedule:
    """All-reduce over two binary trees at once: each carries half of the vector, in k segments.

    No rank has children in both trees. Each edge is used in odd steps only or in even steps only, so that a rank sends
    at most one segment and receives at most one in each step: about 2nb, and O(lg p)a (Sanders, Speck & Traeff 2009).

    >>> schedules.double_binary_tree_all_reduce(7, segments=4)
    <Schedule double binary tree all_reduce: 7 ranks, 8 chunks, 20 steps, 96 messages>
    """
    check_ranks(ranks)
    check_segments(segments)
    first, second = two_trees(ranks)
    colours = two_colours(first, second)
    halves = tuple(range(segments)), tuple(range(segments, 2 * segments))
    moves = _up_and_down([(first, colours[0], halves[0]), (second, colours[1], halves[1])])
    return Schedule("all_reduce", "double binary tree", ranks, 2 * segments, tuple(moves), meta={"segments": segments})


def two_trees(ranks: int) -> tuple[Tree, Tree]:
    """Two binary trees over all ranks, where no rank has children in both.

    The first is a balanced search tree whose inner nodes are the odd ranks. For an odd number of ranks, the second is
    the first with every rank replaced by the next one. For an even number, the first has the last rank as its root, and
    the second is its mirror image.

    >>> first, second = schedules.two_trees(7)
    >>> first.parent
    (1, 3, 1, None, 5, 3, 5)
    >>> second.parent
    (6, 2, 4, 2, None, 6, 4)
    """
    parent: list[int | None] = [None] * ranks

    def build(low: int, high: int, up: int | None) -> None:
        """Makes the subtree of places low to high (both even) below `up`: its root is the odd place in the middle."""
        if low == high:
            parent[low] = up
            return
        inner = (high - low) // 2
        middle = low + 1 + 2 * (inner // 2)
        parent[middle] = up
        build(low, middle - 1, middle)
        build(middle + 1, high, middle)

    if ranks % 2:
        build(0, ranks - 1, None)
        place = [(x + 1) % ranks for x in range(ranks)]
    else:
        build(0, ranks - 2, ranks - 1)
        place = [ranks - 1 - x for x in range(ranks)]
    other: list[int | None] = [None] * ranks
    for x, up in enumerate(parent):
        other[place[x]] = None if up is None else place[up]
    return _tree(parent), _tree(other)


def two_colours(first: Tree, second: Tree) -> tuple[dict[int, int], dict[int, int]]:
    """A colour, 0 or 1, for each edge to a parent, by the child's rank, for either tree.

    The edges from a rank to its two parents get different colours, and so do the edges of two siblings. So an edge must
    differ from at most one edge of each kind: such edges form paths and rings of even length, for which two colours are
    enough.
    """
    trees = (first, second)
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    children = [_children(tree) for tree in trees]
    # start at the roots: if both have a single child, and these edges get the same colour, a step is saved
    order = sorted((trees[which].depth[rank], which, rank) for which in (0, 1) for rank in range(len(first.parent)))
    for _, which, start in order:
        if trees[which].parent[start] is not None and start not in found[which]:
            todo = [(which, start, 0)]
            while todo:
                tree, child, colour = todo.pop()
                parent = trees[tree].parent[child]
                if child in found[tree] or parent is None:
                    continue
                found[tree][child] = colour
                todo.append((1 - tree, child, 1 - colour))
                for sibling in children[tree][parent]:
                    if sibling != child:
                        todo.append((tree, sibling, 1 - colour))
    return found


def _children(tree: Tree) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in tree.parent]
    for rank, up in enumerate(tree.parent):
        if up is not None:
            below[up].append(rank)
    return below


def _tree(parent: list[int | None]) -> Tree:
    depth: dict[int, int] = {}
    for rank in range(len(parent)):
        path: list[int] = []
        at: int | None = rank
        while at is not None and at not in depth:
            path.append(at)
            at = parent[at]
        base = -1 if at is None else depth[at]
        for steps, node in enumerate(reversed(path), 1):
            depth[node] = base + steps
    return Tree(tuple(parent), tuple(depth[r] for r in range(len(parent))))


def _up_and_down(parts: list[tuple[Tree, dict[int, int], tuple[int, ...]]]) -> list[Move]:
    """Reduces each tree's chunks to its root, then broadcasts them; an edge's colour is the parity of its steps."""
    up, down = [], []
    for tree, colours, chunks in parts:
        for child, colour in colours.items():
            parent, depth = tree.parent[child], tree.depth[child]
            if parent is None:
                continue
            for number, chunk in enumerate(chunks):
                up.append(Move(2 * (number + tree.height - depth) + colour, child, parent, (chunk,), reduce=True))
                down.append(Move(2 * (number + depth - 1) + colour, parent, child, (chunk,)))
    return in_sequence(without_empty_steps(up), without_empty_steps(down))
