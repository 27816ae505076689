"""A world imports in one thread only: two that import parts of the same packages at once may wait for each other for ever."""

import json
import os
import subprocess
import sys

import pytest

# what the threads of a plain process look for while one of them starts the engines
WATCHED = """
import json, sys, threading
from allranks import World

class Watch:
    found = []
    def find_spec(self, name, path=None, target=None):
        starting = [t for t in threading.enumerate() if t.name == "allranks-start"]
        if starting and threading.current_thread() not in starting:
            self.found.append(f"{threading.current_thread().name}: {name}")

sys.meta_path.insert(0, Watch())
with World(ranks=2) as world:
    assert world.run(lambda: 7) == [7, 7]
print(json.dumps(Watch.found))
"""


def run(code: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "ALLRANKS_FORKSERVER"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_to_ask_for_a_notebook_imports_nothing():
    code = (
        "import sys; from allranks.ranks.world.screen import in_notebook; assert not in_notebook(); print(*sys.modules)"
    )
    assert [name for name in run(code).split() if name.partition(".")[0] == "IPython"] == []


def test_half_of_ipython_is_no_notebook():
    """As another thread leaves it while it imports the rest."""
    code = """
import sys, types
from allranks.ranks.world.screen import in_notebook
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython.core.interactiveshell"] = types.ModuleType("IPython.core.interactiveshell")
print(in_notebook())
"""
    assert run(code) == "False\n"


ROOTS = tuple(
    f"allranks.ranks.engines.{name}" for name in ("forkserver.machine", "gpu_service", "gpu_nodes", "gpu_metrics")
)


def test_a_learner_imports_nothing_of_roots_services():
    """They open devices and fork for other accounts; a notebook needs none of it, and asks them over sockets."""
    code = """
import sys, allranks
for name in allranks.__all__:
    getattr(allranks, name)
from allranks.ranks import magics
from allranks.ranks.engines import kernels, served_leases
from allranks.ranks.world import launched
print(*sys.modules)
"""
    loaded = run(code).split()
    assert "allranks.ranks.engines.leases" in loaded
    assert [name for name in loaded if name.endswith(ROOTS)] == []


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")
def test_while_the_engines_start_no_other_thread_imports():
    assert json.loads(run(WATCHED)) == []
