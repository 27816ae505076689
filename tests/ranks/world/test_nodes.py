"""Several nodes: the numbering alone, and a real group over three network namespaces that stand for three machines."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from allranks import World
from allranks.ranks.engines import nodes
from allranks.ranks.engines.devices import GPU_INDEX_ENV, DeviceError, Driver, Gpu, Inventory
from allranks.ranks.engines.nodes import Seat, choose_backend, environment, look, number
from allranks.ranks.world import WorldError
from waiting import until


def seat(engine_id: int, host: str, gpus: int = 0, rank: int | None = None) -> Seat:
    return Seat(engine_id, host, tuple(f"{host}-gpu{i}" for i in range(gpus)), 8, (2, 30) if gpus else None, rank)


def test_ranks_are_numbered_host_by_host_and_local_ranks_within():
    seats = [seat(0, "b", 2), seat(1, "a", 2), seat(2, "b", 2), seat(3, "a", 2)]
    ordered = number(seats)
    assert [(s.host, s.engine_id) for s in ordered] == [("a", 1), ("a", 3), ("b", 0), ("b", 2)]
    env = environment(ordered, "nccl")
    assert [(e["RANK"], e["LOCAL_RANK"], e["CUDA_VISIBLE_DEVICES"], e[GPU_INDEX_ENV]) for e in env] == [
        ("0", "0", "a-gpu0,a-gpu1", "0"), ("1", "1", "a-gpu0,a-gpu1", "1"),
        ("2", "0", "b-gpu0,b-gpu1", "0"), ("3", "1", "b-gpu0,b-gpu1", "1"),
    ]  # fmt: skip
    assert {(e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]) for e in env} == {("4", "2")}


def test_the_launchers_own_numbers_win_where_they_are_whole():
    said = [seat(0, "a", rank=2), seat(1, "b", rank=0), seat(2, "c", rank=1)]
    assert [s.engine_id for s in number(said)] == [1, 2, 0]
    twice = [seat(0, "b", rank=0), seat(1, "a", rank=0)]
    assert [s.host for s in number(twice)] == ["a", "b"]


def test_nccl_is_chosen_where_each_rank_has_a_gpu_and_refused_where_not():
    assert choose_backend([seat(0, "a", 1), seat(1, "b", 1)]) == "nccl"
    assert choose_backend([seat(0, "a", 1), seat(1, "b", 0)]) == "gloo"
    assert choose_backend([seat(0, "a", 1), seat(1, "a", 1)]) == "gloo"
    with pytest.raises(DeviceError, match="a has 1 GPUs for 2 ranks"):
        environment([seat(0, "a", 1), seat(1, "a", 1)], "nccl")
    assert {e["CUDA_VISIBLE_DEVICES"] for e in environment([seat(0, "a", 1)], "gloo")} == {""}


def test_a_node_whose_driver_is_too_old_counts_as_one_without_gpus_and_says_why(monkeypatch):
    gpus = tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(2))
    old = Inventory(gpus, 8, (2, 30, 7), driver=Driver("550.54.15", (12, 4)), torch_cuda=(13, 2))._judged()
    monkeypatch.setattr(Inventory, "of_this_machine", lambda: old)
    seats = [replace(Seat(**look(i)), host="a") for i in range(2)]
    assert choose_backend(seats) == "gloo"
    with pytest.raises(DeviceError, match=r"a has 0 GPUs for 2 ranks: .* needs driver 580 or newer\.$"):
        environment(seats, "nccl")


def test_ranks_on_several_nodes_are_not_bound_to_loopback():
    for env in environment([seat(0, "a", 1), seat(1, "b", 1)], "nccl"):
        assert not {name for name in env if name.endswith("_IFNAME") or "RAS" in name}


def test_nccl_takes_the_interface_of_exactly_this_name(monkeypatch):
    """To NCCL eno1 alone also stands for eno12399, which may be a network that the other nodes can't reach."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(nodes, "interface_of", lambda address: "eno1")
    assert nodes.set_interface("127.0.0.1") == "eno1"
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("eno1", "=eno1")


@pytest.mark.parametrize("text, words", [(None, "There is no cluster file"), ("not json", "can't be reached")])
def test_a_cluster_file_that_can_not_be_used_is_one_sentence(tmp_path, monkeypatch, text, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    if text is not None:
        (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(WorldError, match=words):
        World.attach("~/cluster.json")


# ------------------------------------------------------------------------------------------ three "machines"

CAPSTONE = Path(__file__).resolve().parents[3] / "chapters/3_one_model/30_capstone.ipynb"
NODES = {"arA": "10.77.0.1", "arB": "10.77.0.2", "arC": "10.77.0.3"}
CLIENT = """
import json, os, sys
from allranks import World
from allranks.ranks.world import WorldError

def who():
    import os, torch.distributed as dist
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GLOO_SOCKET_IFNAME", "ALLRANKS_HOST")
    return [os.environ[n] for n in names] + [dist.get_rank()]

# the capstone's own cells: the model, the batch, and the three ways to train it
for cell in json.load(open(sys.argv[2]))["cells"]:
    if cell["id"] in ("text", "block", "model", "batch", "alone", "ddp", "zero", "enter_leave", "tensor_parallel"):
        exec("".join(cell["source"]).split("print(")[0])  # the text's cell ends with a line for the reader
    elif cell["id"] == "start_world":
        exec(chr(10).join(line for line in "".join(cell["source"]).splitlines() if "import" in line))
    elif cell["id"] == "train":
        exec("".join(cell["source"]).split("losses =")[0])

world = World.attach(sys.argv[1])
print(json.dumps(world.run(who)), flush=True)
alone_losses = world.run(train, alone, 3)[0]
print(json.dumps([alone_losses, *(world.run(train, way, 3) for way in (ddp, zero, tensor_parallel))]), flush=True)
sys.stdin.readline()  # meanwhile a node is lost
try:
    world.run(train, ddp, 10, deadline=5)
    print("no error", flush=True)
except WorldError as error:
    print(str(error).replace(chr(10), " | "), flush=True)
world.stop()
"""


def sh(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)


def can_make_namespaces() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "arprobe"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "arprobe"], capture_output=True)
    return made


@pytest.fixture
def three_nodes():
    """Three network namespaces joined by a bridge in the first; nothing else of theirs is shared but the disk."""
    if not can_make_namespaces():
        pytest.skip("network namespaces need root and the `ip` program")
    try:
        for name in NODES:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", "arA", "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", "arA", "addr", "add", f"{NODES['arA']}/24", "dev", "br0")
        sh("ip", "-n", "arA", "link", "set", "br0", "up")
        for name in ("arB", "arC"):
            sh("ip", "-n", "arA", "link", "add", f"to{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            sh("ip", "-n", "arA", "link", "set", f"to{name}", "master", "br0", "up")
            sh("ip", "-n", name, "addr", "add", f"{NODES[name]}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
        yield
    finally:
        for name in NODES:
            sh("ip", "netns", "del", name, check=False)


@pytest.mark.live
@pytest.mark.servers
def test_the_capstones_first_steps_over_two_machines_and_one_machine_lost_is_said(three_nodes, tmp_path):
    directory, log = tempfile.mkdtemp(prefix="art-"), open(tmp_path / "log", "w+")
    running = []

    def on(node: str, *command: str, **options) -> subprocess.Popen:
        env = {**os.environ, "IPP_ENABLE_CURVE": "1", "ALLRANKS_HOST": node, "OMP_NUM_THREADS": "1"}
        line = ["ip", "netns", "exec", node, sys.executable, "-u", *command]
        # a session of its own: the controller's schedulers are processes too, and outlive it
        running.append(
            subprocess.Popen(line, env=env, start_new_session=True, **{"stdout": log, "stderr": log, **options})
        )
        return running[-1]

    try:
        profile = f"--profile-dir={directory}"
        on("arA", "-m", "ipyparallel.controller", profile, f"--ip={NODES['arA']}", f"--location={NODES['arA']}",
           "--HeartMonitor.period=500")  # fmt: skip
        files = Path(directory) / "security"
        until((files / "ipcontroller-engine.json").exists)
        for node in ("arB", "arB", "arC"):
            on(node, "-m", "ipyparallel.engine", profile, f"--file={files / 'ipcontroller-engine.json'}")
        state = Path(directory) / "log" / "engines.json"

        def all_there() -> bool:
            with contextlib.suppress(OSError, ValueError):  # it may be written just now
                return len(json.loads(state.read_text()).get("engines", {})) == 3
            return False

        until(all_there)
        client = on("arA", "-c", textwrap.dedent(CLIENT), str(files / "ipcontroller-client.json"),
                    str(CAPSTONE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip

        def said() -> str:
            """What the client prints next; what the ranks printed (a warning of torch) is passed over."""
            while (line := client.stdout.readline()).startswith("[rank "):
                continue
            return line

        who = json.loads(said())
        assert [w[:6] for w in who] == [
            ["0", "0", "3", "2", "eth0", "arB"], ["1", "1", "3", "2", "eth0", "arB"], ["2", "0", "3", "1", "eth0", "arC"],
        ]  # fmt: skip
        assert [w[6] for w in who] == [0, 1, 2]
        alone, *ways = json.loads(said())
        assert alone[-1] < alone[0]
        for by_rank in ways:  # DDP, ZeRO and tensor parallel over two machines are one process's training
            assert len(by_rank) == 3
            for losses in by_rank:
                assert losses == pytest.approx(alone, abs=1e-4)
        sh("ip", "-n", "arC", "link", "set", "eth0", "down")
        client.stdin.write("\n")
        client.stdin.flush()
        end = said()
        assert "Not every rank returned" in end or "RuntimeError" in end or "no longer known" in end, end
        assert "World.attach again" in end
        client.stdin.close()
        assert client.wait(90) == 0
        client.stdout.close()
    except BaseException:
        log.flush()
        print((tmp_path / "log").read_text()[-3000:])
        raise
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()
        shutil.rmtree(directory, ignore_errors=True)
