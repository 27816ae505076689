"""`allranks explain`: what it prints and its exit statuses."""

import json
import sys
from pathlib import Path

from allranks.cli import main
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "jobs"))
from kineto_files import Profile


def run(*args):
    return CliRunner().invoke(main, ["explain", *map(str, args)])


def test_a_job_is_explained(tmp_path):
    path = Profile(0, 2).compute(0, 100).call("allreduce", 50, 200).save(tmp_path / "a.json.gz")
    ran = run(path)
    assert ran.exit_code == 0
    for words in (
        "What costs the time",
        "Where the time goes",
        "The collectives",
        "What the files do not say",
        "33.3 %",
    ):
        assert words in ran.output
    ran = run(path, "--json")
    found = json.loads(ran.output)
    assert found["ranks"][0]["overlap"] == 50 / 150 and found["missing"] == [1]


def test_nothing_readable_is_status_2_and_one_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    for path, words in ((tmp_path, "No file says anything of a job"), (tmp_path / "b", "There is no file")):
        ran = run(path)
        assert ran.exit_code == 2 and ran.output.startswith(words) and ran.output.count("\n") == 1
