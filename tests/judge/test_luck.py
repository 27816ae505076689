"""What a mistake costs must not depend on the course's secret: an exercise's own mistakes show in a case with all secrets, or with none."""

from dataclasses import replace

import pytest
from allranks.exercises import families, get, names
from luck import lucky

SECRETS = range(1, 4)
# what is wrong with a job is drawn with it: each of the other mistakes shows in some jobs of a kind only
ONLY = {
    "diagnose_job": (
        "the hosts' clocks differ",
        "by their place in the file",
        "by their order in the group",
        "the time of a small call was counted once",
        "the one with the largest ratio",
    )
}


class GaveUpError(Exception):
    """No draw shows all mistakes that must show."""


@pytest.fixture(autouse=True)
def loud(monkeypatch):
    def gave_up(words):
        raise GaveUpError(words)

    monkeypatch.setattr(families, "gave_up", gave_up)


@pytest.mark.parametrize("name", names())
def test_whether_a_mistake_shows_is_no_luck(name):
    found = lucky(get(name), SECRETS, ONLY.get(name, ("",)))
    assert not found, "\n".join(map(str, found))


def test_luck_is_found_where_inputs_are_drawn_once():
    exercise = get("distributed_softmax")
    found = lucky(replace(exercise, inputs=exercise.inputs.__wrapped__), SECRETS)
    assert {one.cause.partition(":")[0] for one in found} >= {
        "the maximum of each column was subtracted, as max over dim 0 gives"
    }


def test_no_draw_that_shows_a_mistake_is_told():
    exercise = get("ring_shift")
    as_right = replace(exercise, mistakes={"as it must be": exercise.oracle})
    setup = exercise.groups[0].setups[0]
    with pytest.raises(GaveUpError, match="ring_shift"):
        families.steadied(as_right, {"as it must be": lambda setup: True}).inputs(setup, setup.draws(0))
