"""Whose code it is decides how a function travels."""

import functools
import importlib.util
import pickle
import sys
import sysconfig
import types
from pathlib import Path

import allranks
import cloudpickle
import pytest
import torch
from allranks.ranks.engines.usercode import by_value, in_library

OURS = Path(allranks.__file__).parent


@pytest.mark.parametrize(
    ("file", "library"),
    [
        (str(OURS / "trace.py"), True),
        (torch.__file__, True),
        (sysconfig.get_path("stdlib") + "/os.py", True),
        ("<frozen importlib>", True),
        (f"{OURS}_mine/ring.py", False),  # beside ours, not in it
        ("/home/ada/ring.py", False),
        ("<ipython-input-1>", False),
    ],
)
def test_a_file_is_a_librarys_or_the_users(file, library):
    assert in_library(file) is library


@pytest.fixture
def asked_anew():
    in_library.cache_clear()
    yield
    in_library.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",  # an NGC image, --system-site-packages
        "/usr/local/lib/python3.12/dist-packages/torch/_ops.py",
        "/home/ada/.local/lib/python3.12/site-packages/torch/_ops.py",  # the user site
        "/home/ada/project/.venv/lib/python3.12/site-packages/numpy/core.py",
    ],
)
def test_a_torch_that_is_installed_elsewhere_is_a_library(file):
    assert in_library(file)


@pytest.mark.usefixtures("asked_anew")
def test_what_pip_put_into_a_target_folder_is_a_library_and_the_users_package_beside_it_is_not(tmp_path, monkeypatch):
    """Both lie in a folder of PYTHONPATH; a package of `pip install -e` has an egg-info beside it, at most."""
    about = tmp_path / "fastlib-1.0.dist-info"
    about.mkdir()
    (about / "RECORD").write_text(
        "fastlib/__init__.py,,\nfastlib_one.py,,\nfastlib-1.0.dist-info/RECORD,,\n../../bin/fast,,\n"
    )
    (tmp_path / "adas.egg-info").mkdir()
    (tmp_path / "adas.egg-info" / "top_level.txt").write_text("adas\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert in_library(str(tmp_path / "fastlib" / "deep" / "inside.py"))
    assert in_library(str(tmp_path / "fastlib_one.py"))
    for name in ("adas/ring.py", "ring.py", "bin/fast", "fastlib_mine/ring.py"):
        assert not in_library(str(tmp_path / name))


@pytest.mark.usefixtures("asked_anew")
def test_a_torch_that_runs_from_its_source_tree_is_a_library(monkeypatch):
    built = types.ModuleType("torch")
    built.__path__ = ["/opt/pytorch/torch"]
    monkeypatch.setitem(sys.modules, "torch", built)
    assert in_library("/opt/pytorch/torch/distributed/distributed_c10d.py")
    assert not in_library("/opt/pytorch/mine.py") and not in_library("/opt/pytorch/torch_mine/ring.py")


def test_a_cached_function_of_the_users_travels_whole_and_empty():
    @functools.lru_cache(maxsize=7)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(9) == 34
    with by_value(fibonacci):
        there, library = cloudpickle.loads(cloudpickle.dumps((fibonacci, in_library)))
        with pytest.raises((AttributeError, pickle.PicklingError)):  # pickle itself goes on as ever
            pickle.dumps(fibonacci)
    assert (there.cache_info().currsize, there.cache_parameters(), there(9)) == (0, {"maxsize": 7, "typed": False}, 34)
    assert library is in_library
    with pytest.raises((AttributeError, pickle.PicklingError)):
        cloudpickle.dumps(fibonacci)


def test_the_users_modules_travel_whole_and_libraries_by_name(tmp_path):
    path = tmp_path / "ada_ring.py"
    path.write_text("def ring(tensor):\n    return tensor\n")
    spec = importlib.util.spec_from_file_location("ada_ring", path)
    module = sys.modules["ada_ring"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        assert len(cloudpickle.dumps(module.ring)) < 100  # by name: a rank would have to import it
        for fn in (module.ring, functools.partial(torch.add, module.ring)):
            with by_value(fn):
                assert len(cloudpickle.dumps(module.ring)) > 200
        with by_value(torch.nn.functional.relu):
            assert len(cloudpickle.dumps(torch.nn.functional.relu)) < 100
        assert "ada_ring" not in cloudpickle.list_registry_pickle_by_value()
    finally:
        del sys.modules["ada_ring"]
