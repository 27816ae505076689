"""Slices of TPUs: the book's own worked problems, a ring against a line, and a count of what crosses each link."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from allranks import cost
from allranks.cli import main
from click.testing import CliRunner


def test_the_books_worked_problem():
    """sharding.md, question 2.3: an all-gather of 2 x 1024 x 4096 bytes over two axes of 4 at 9e10 both ways takes 46 us."""
    book_s = 2 * 1024 * 4096 / (2 * 9e10)
    found = cost.torus_price("all_gather", 2 * 1024 * 4096, "tpu-v4-4x4x1")
    assert found.seconds == pytest.approx(book_s * 15 / 16)
    assert found.rings == (True, True, False)
    # question 3: 256 bytes are bound by 2 hops on an axis of 4
    assert cost.torus_price("all_gather", 256, "tpu-v4-4x1x1").seconds == pytest.approx(2e-6)


def test_the_rates_are_those_of_the_books_table():
    """tpus.md at 0819a7d, "ICI BW/link (one-way)"."""
    assert {name: kind.bytes_per_s for name, kind in cost.SLICES.items()} == {
        "tpu-v4": 4.5e10,
        "tpu-v5p": 9e10,
        "tpu-v5e": 4.5e10,
        "tpu-v6e": 9e10,
    }


def crossing(shape, rings, nbytes):
    """Bytes over the busiest link in an all_to_all, each message by the shortest way, axis after axis."""
    p, over = math.prod(shape), {}
    for source, target in itertools.product(itertools.product(*map(range, shape)), repeat=2):
        at = list(source)
        for axis, length in enumerate(shape):
            ahead = (target[axis] - at[axis]) % length if rings[axis] else target[axis] - at[axis]
            ways = [(ahead, 1.0)]
            if rings[axis] and 2 * ahead == length:
                ways = [(ahead, 0.5), (-ahead, 0.5)]  # as far both ways: half of it each
            elif rings[axis] and 2 * ahead > length:
                ways = [(ahead - length, 1.0)]
            for steps, share in ways:
                place = list(at)
                for _ in range(abs(steps)):
                    sign = 1 if steps > 0 else -1
                    link = (axis, tuple(place), sign)
                    over[link] = over.get(link, 0) + share * nbytes / p
                    place[axis] = (place[axis] + sign) % length
            at[axis] = target[axis]
    return max(over.values())


@pytest.mark.parametrize(
    ("name", "rings"),
    [("tpu-v4-4x4x1", (1, 1, 1)), ("tpu-v4-4x8x2", (1, 1, 0)), ("tpu-v5e-4x4", (0, 0)), ("tpu-v5e-16x2", (1, 0))],
)
def test_all_to_all_is_what_crosses_the_busiest_link(name, rings):
    found, rate = cost.torus_price("all_to_all", 1e9, name), cost.SLICES[name.rsplit("-", 1)[0]].bytes_per_s
    assert found.moving_s == pytest.approx(crossing(found.shape, rings, 1e9) / rate)


def test_a_gather_is_no_faster_than_the_last_chips_links():
    """The last chip of a line gets all but its own part over one link an axis; of a ring over two."""
    line, ring = (
        cost.torus_price("all_gather", 1e9, "tpu-v5e-8x8"),
        cost.torus_price("all_gather", 1e9, "tpu-v5e-16x16"),
    )
    assert line.seconds == pytest.approx(1e9 * 63 / 64 / (2 * 45e9))
    assert ring.seconds == pytest.approx(1e9 * 255 / 256 / (4 * 45e9))
    assert cost.torus_price("all_reduce", 1e9, "tpu-v5e-8x8").seconds == pytest.approx(2 * line.seconds)
    assert cost.torus_price("all_reduce", 1e9, "tpu-v5e-1x1").seconds == 0


@pytest.mark.parametrize(
    ("collective", "name", "said"),
    [
        ("all_gather", "tpu-v9-4x4", "is no slice of TPUs; it is one of tpu-v4"),
        ("all_gather", "tpu-v5e-32x32", "at most 256 chips; 32x32 has 2 and 1024"),
        ("all_gather", "tpu-v4-4x4", "has 3 axes"),
        ("all_gather", "tpu-v5e-0x4", "has 2 axes"),
        ("broadcast", "tpu-v5e-4x4", "no formula for 'broadcast'"),
    ],
)
def test_what_is_no_slice_is_one_sentence(collective, name, said):
    with pytest.raises(cost.CostError, match=said):
        cost.torus_price(collective, 1024, name)


def test_the_command_says_that_it_is_a_formula():
    words = CliRunner().invoke(
        main, ["simulate", "--topology", "tpu-v5e-16x8", "--collective", "all_gather", "--bytes", "1GiB"]
    )
    assert words.exit_code == 0, words.output
    assert "16 in a ring, 8 in a line" in words.output and "this is a formula" in words.output
    found = CliRunner().invoke(
        main, ["simulate", "--topology", "tpu-v5e-16x8", "--collective", "all_gather", "--bytes", "1GiB", "--json"]
    )
    assert json.loads(found.output)["seconds"] == cost.torus_price("all_gather", 2**30, "tpu-v5e-16x8").seconds
    wrong = CliRunner().invoke(main, ["simulate", "--topology", "tpu-v5e-16x8", "--ranks", "4"])
    assert wrong.exit_code != 0 and "its shape is the number of ranks" in wrong.output
