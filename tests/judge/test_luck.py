"""What a mistake costs must not depend on the course's secret: an exercise's own mistakes show in a case with all secrets, or with none."""

from dataclasses import replace

import pytest
from allranks.exercises import get, names
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
