"""Pipelined binary trees for all-reduce: one tree, and two trees in which no rank has children twice."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.schedules.core import Move, Schedule, after, check_ranks, check_segments, compact

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
    """All-reduce over one binary tree, k segments in a pipeline: up adding, then down, left and right in turns.

    An inner rank takes two segments for every one that it sends: about 2nb up and 2nb down, O(lg p)a.
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
    """All-reduce over two binary trees at once, half the vector each, k segments a half.

    No rank has children in both trees, and edges have two colours, odd steps and even ones, so that every rank sends one
    segment and receives one in each step (Sanders, Speck & Traeff 2009): about 2nb, O(lg p)a.
    """
    check_ranks(ranks)
    check_segments(segments)
    first, second = two_trees(ranks)
    colours = two_colours(first, second)
    halves = tuple(range(segments)), tuple(range(segments, 2 * segments))
    moves = _up_and_down([(first, colours[0], halves[0]), (second, colours[1], halves[1])])
    return Schedule("all_reduce", "double binary tree", ranks, 2 * segments, tuple(moves), meta={"segments": segments})


def two_trees(ranks: int) -> tuple[Tree, Tree]:
    """Two binary trees over all ranks; no rank has children in both.

    The first is a balanced search tree whose inner nodes are the odd ranks; the second is the same one place further
    round where the number of ranks is odd, and its mirror image where it is even (with the last rank on top of the first).
    """
    parent: list[int | None] = [None] * ranks

    def build(low: int, high: int, up: int | None) -> None:
        """Hangs the places low..high (even at both ends) below `up`: the middle odd place, and what is at its sides."""
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

    A rank's two parents' edges differ, and so do those of two siblings: each edge has at most two others to differ from,
    one of each kind, so these form paths and even rings, which two colours suffice for.
    """
    trees = (first, second)
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    children = [_children(tree) for tree in trees]
    # the edges next to the roots come first: where the only children of both get one colour, a step is saved
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
    """Reduces every part's chunks to its tree's root, then broadcasts them: one step for odd edges, one for even ones."""
    up, down = [], []
    for tree, colours, chunks in parts:
        for child, colour in colours.items():
            parent, depth = tree.parent[child], tree.depth[child]
            if parent is None:
                continue
            for number, chunk in enumerate(chunks):
                up.append(Move(2 * (number + tree.height - depth) + colour, child, parent, (chunk,), reduce=True))
                down.append(Move(2 * (number + depth - 1) + colour, parent, child, (chunk,)))
    return after(compact(up), compact(down))
