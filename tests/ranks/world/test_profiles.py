"""Worlds on other machines: what Slurm and SSH are told, and worlds that they really started.

Without Slurm a stand-in runs what is submitted (see slurm_stand_in.py: it is not Slurm). Where Slurm's daemons are installed, one of
them of our own runs a job; where sshd is, one of our own takes the engines.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from allranks import World
from allranks.ranks.engines import clusters
from allranks.ranks.engines.clusters import ClusterError
from allranks.ranks.engines.devices import GPU_INDEX_ENV, DeviceError
from allranks.ranks.engines.nodes import Seat, choose_backend, environment
from allranks.ranks.engines.ports import hold
from allranks.ranks.world import WorldError
from waiting import until

HERE = Path(__file__).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="clusters run Linux")
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def who():
    import os

    import torch
    import torch.distributed as dist

    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ALLRANKS_HOST", "GLOO_SOCKET_IFNAME")
    return [*(os.environ[name] for name in names), total.item(), os.getpid()]


# ------------------------------------------------------------------------------------------------ what they are told


def script(tmp_path, *arguments) -> str:
    """The batch script that ipyparallel writes."""
    job = clusters.job("slurm", *arguments, directory=tmp_path)
    launcher = job.launcher(profile_dir=str(tmp_path), **job.traits)
    launcher.write_batch_script(job.ranks)
    return (tmp_path / "engines.sbatch").read_text()


def test_the_script_that_ipyparallel_writes_asks_for_an_engine_a_gpu(tmp_path):
    text = script(tmp_path, 8, 2, None, {"partition": "gpu", "time": "01:00:00", "exclusive": True})
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=allranks",
        "#SBATCH --export=ALL",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks=8",
        "#SBATCH --ntasks-per-node=4",
        f"#SBATCH --output={tmp_path}/engines.log",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=01:00:00",
        "#SBATCH --exclusive",
        "#SBATCH --gpus-per-node=4",
    ]
    run = lines[-1]
    assert run.startswith(
        "srun --distribution=block sh -c 'export RANK=$SLURM_PROCID ALLRANKS_HOST=$SLURMD_NODENAME; exec "
    )
    assert f"{shlex.quote(sys.executable)} -m ipyparallel.engine" in run and "--IPEngine.id=$SLURM_PROCID" in run
    assert subprocess.run(["sh", "-n", str(tmp_path / "engines.sbatch")]).returncode == 0


def test_gpus_are_asked_for_once_and_not_for_gloo(tmp_path):
    assert "SBATCH --g" not in script(tmp_path, 2, 1, "gloo", None)
    own = script(tmp_path, 2, 1, None, {"gres": "gpu:h100:2"})
    assert "--gres=gpu:h100:2" in own and "gpus-per-node" not in own


def test_ssh_hosts_are_read():
    job = clusters.job("ssh", 4, settings={"hosts": ["127.0.0.1", "me@localhost:2222"], "ssh_args": ["-p", "22"]})
    assert job.traits["engines"] == {"127.0.0.1": 2, "me@localhost:2222": 2} and job.address == "127.0.0.1"
    assert job.traits["ssh_args"] == ["-o", "BatchMode=yes", "-p", "22"]
    assert job.traits["scp_args"] == ["-o", "BatchMode=yes", "-P", "22"]
    assert clusters.job("ssh", None, settings={"hosts": {"127.0.0.1": 3}}).ranks == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profile": "kubernetes"}, "profile='kubernetes' is unknown; it is 'slurm' or 'ssh'"),
        ({"profile": "slurm"}, r"needs ranks="),
        ({"profile": "slurm", "ranks": 3, "nodes": 2}, "3 ranks can't be divided evenly among nodes=2"),
        ({"profile": "slurm", "ranks": 2, "nodes": 0}, "nodes=0"),
        ({"profile": "slurm", "ranks": 0}, "at least one rank"),
        (
            {"profile": "slurm", "ranks": 2, "settings": {"nodes": 2}},
            "The course sets 'nodes' itself, from ranks= and nodes=",
        ),
        ({"profile": "slurm", "ranks": 2, "settings": {"time": "1\nrm -rf"}}, "'time' is not a long option of sbatch"),
        ({"profile": "slurm", "ranks": 2, "settings": {"wait_s": -1}}, "wait_s is -1"),
        ({"profile": "ssh"}, "needs its hosts"),
        ({"profile": "ssh", "settings": {"hosts": {"a b": 1}}}, "'a b' is not a host"),
        ({"profile": "ssh", "settings": {"hosts": {"-oProxyCommand=x": 1}}}, "is not a host"),
        ({"profile": "ssh", "settings": {"hosts": {"localhost": 0}}}, "localhost has 0 ranks"),
        ({"profile": "ssh", "ranks": 3, "settings": {"hosts": {"localhost": 2}}}, "The hosts have 2 ranks, not 3"),
        ({"profile": "ssh", "nodes": 2, "settings": {"hosts": {"localhost": 2}}}, "There are 1 hosts, not nodes=2"),
        ({"profile": "ssh", "settings": {"hosts": {"localhost": 2}, "queue": "x"}}, "no setting 'queue'"),
        ({"profile": "ssh", "settings": {"hosts": {"localhost": 99}}}, "have 99 ranks; a world takes 64"),
        ({"profile": "ssh", "settings": {"hosts": {"no-such-host.invalid": 1}}}, "no-such-host.invalid can't be found"),
        ({"nodes": 2}, "nodes= and settings= go with profile="),
        ({"profile": "slurm", "ranks": 2, "shared": True}, "are for this machine; with profile= say it in settings="),
        ({"profile": "ssh", "name": "us", "settings": {"hosts": {"localhost": 2}}}, "can't be shared by name="),
    ],
)
def test_what_can_not_be_is_one_sentence(options, words):
    with pytest.raises((WorldError, DeviceError), match=words) as caught:
        World(**options)
    assert "\n" not in str(caught.value)


def test_keys_lie_in_a_directory_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_CLUSTER_DIR", str(tmp_path / "keys"))
    assert clusters.shared_directory().stat().st_mode & 0o777 == 0o700
    (tmp_path / "keys").chmod(0o750)
    with pytest.raises(ClusterError, match=r"must be yours alone.*chmod 700"):
        clusters.shared_directory()
    monkeypatch.setenv("ALLRANKS_CLUSTER_DIR", "/proc/none")
    with pytest.raises(ClusterError, match="can't be made"):
        clusters.shared_directory()


def seen(environments):
    return [(env["CUDA_VISIBLE_DEVICES"], env[GPU_INDEX_ENV]) for env in environments]


def test_engines_that_were_given_a_gpu_each_use_it():
    """Where a batch system shows each task its own GPU; where it shows all to all, the local rank chooses."""
    own = [Seat(i, "a", (f"gpu{i}",), 8, (2, 30), i) for i in range(2)]
    assert choose_backend(own) == "nccl"
    assert seen(environment(own, "nccl")) == [("gpu0", "0"), ("gpu1", "0")]
    every = [Seat(i, "a", ("gpu0", "gpu1"), 8, (2, 30), i) for i in range(2)]
    assert seen(environment(every, "nccl")) == [("gpu0,gpu1", "0"), ("gpu0,gpu1", "1")]
    more = [Seat(i, "a", ("gpu0", "gpu1", "gpu2"), 8, (2, 30), i) for i in range(2)]
    assert seen(environment(more, "nccl")) == [("gpu0,gpu1", "0"), ("gpu0,gpu1", "1")], "no GPU that no rank uses"
    same = [Seat(i, "a", ("gpu0",), 8, (2, 30), i) for i in range(2)]
    assert choose_backend(same) == "gloo"
    with pytest.raises(DeviceError, match="a has 1 GPUs for 2 ranks"):
        environment(same, "nccl")


# ------------------------------------------------------------------------------------------------ worlds


@pytest.fixture
def cluster_dir(monkeypatch, short_path):
    """Where connection files lie; nothing may be left there."""
    path = short_path / "c"
    monkeypatch.setenv("ALLRANKS_CLUSTER_DIR", str(path))
    yield path
    assert list(path.iterdir()) == [], "files of a world were left"


@pytest.fixture
def stand_in(tmp_path, monkeypatch, cluster_dir):
    """sbatch and its fellows, which are not Slurm's."""
    programs, jobs = tmp_path / "bin", tmp_path / "jobs"
    programs.mkdir()
    jobs.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel"):
        program = programs / name
        words = shlex.join([sys.executable, str(HERE / "slurm_stand_in.py"), name])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')  # no "#!python": its path may hold a space
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_JOBS", str(jobs))
    return jobs


def gone(pids: list[int]) -> bool:
    return until(lambda: not any(map(psutil.pid_exists, pids)))


@linux
@pytest.mark.live
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_a_world_of_two_nodes_that_a_stand_in_for_slurm_started(stand_in, monkeypatch):
    with World(profile="slurm", ranks=4, nodes=2, backend="gloo", settings={"address": "127.0.0.1"}) as world:
        assert World() is world and World(profile="slurm") is world
        with pytest.raises(ClusterError, match="needs its hosts"):
            World(ranks=4, profile="ssh")  # another profile is another world; the running one stays till then
        assert world.running
        found = world.run(who)
        assert [f[:4] for f in found] == [
            ["0", "0", "2", "standin0"], ["1", "1", "2", "standin0"], ["2", "0", "2", "standin1"], ["3", "1", "2", "standin1"],
        ]  # fmt: skip
        assert {f[4] for f in found} == {"lo"} and {f[5] for f in found} == {10.0}
        assert "on standin1" in repr(world)
        pids = [f[6] for f in found]
        with pytest.raises(WorldError, match=r"(?s)world.reset\(\) starts new ones"):
            world.run(lambda: time.sleep(60) if os.environ["RANK"] == "2" else None, deadline=2)
        assert not world.running and gone(pids)
        world.reset()
        again = world.run(who)
        assert {f[5] for f in again} == {10.0} and not {f[6] for f in again} & set(pids)
    assert gone([f[6] for f in again])
    assert sorted(path.name for path in stand_in.iterdir()) == ["1", "1.sbatch", "2", "2.sbatch"]


@linux
@pytest.mark.live
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_a_job_that_slurm_refuses_or_that_fails_is_one_sentence(stand_in, cluster_dir, monkeypatch, tmp_path):
    here = {"address": "127.0.0.1"}
    with pytest.raises(ClusterError, match=r"Slurm refused \(sbatch\): .*invalid partition specified: nowhere"):
        World(profile="slurm", ranks=2, backend="gloo", settings={**here, "partition": "nowhere"})
    with pytest.raises(WorldError, match=r"Slurm's job 1 ended \(FAILED .*Its log ends: .*no_such_python"):
        World(profile="slurm", ranks=2, backend="gloo", settings={**here, "python": "/no_such_python"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"sbatch can't be run .* starts on a machine where jobs are submitted"):
        World(profile="slurm", ranks=2, backend="gloo", settings=here)


@pytest.fixture
def held_ports():
    """A function that gives ports of this machine which are nobody else's until the test's end, though daemons may listen there."""
    with contextlib.ExitStack() as stack:

        def ask(n: int) -> list[int]:
            return [stack.enter_context(held).getsockname()[1] for held in hold(n, "127.0.0.1")]

        yield ask


def program(name: str) -> str:
    """The path of a daemon. Skips the test where it is not installed, or we are not root, whom it wants to be run by."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None or os.geteuid() != 0:
        pytest.skip(f"{name} is not installed, or not to be run by this user")
    return found


@pytest.fixture
def daemons(tmp_path):
    """A function that starts a daemon in the foreground; all are ended afterwards, the last one first."""
    running, log = [], open(tmp_path / "daemons.log", "w")

    def start(*command: str, **options) -> subprocess.Popen:
        running.append(subprocess.Popen(command, stdout=log, stderr=log, **options))
        return running[-1]

    yield start
    for process in reversed(running):
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    log.close()


SLURM_CONF = """
ClusterName=allranks
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge.sock
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def end_jobs(conf: Path) -> None:
    """Waits until the jobs are gone; what a step's daemon has left after that is killed."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not subprocess.run(["squeue", "--noheader"], capture_output=True, text=True).stdout.strip():
            break
        time.sleep(0.2)
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):  # it may be ending just now
            if process.info["name"] == "slurmstepd" and process.environ().get("SLURM_CONF") == str(conf):
                process.kill()


@pytest.fixture
def slurm(held_ports, daemons, short_path, monkeypatch, cluster_dir):
    """A Slurm of our own, with one node: munged, slurmctld and slurmd on free ports."""
    munged, slurmctld, slurmd = map(program, ("munged", "slurmctld", "slurmd"))
    base, host = short_path, socket.gethostname().partition(".")[0]
    (base / "key").write_bytes(os.urandom(1024))
    (base / "key").chmod(0o400)
    for name in ("state", "spool"):
        (base / name).mkdir()
    controller, node = held_ports(2)
    (base / "slurm.conf").write_text(SLURM_CONF.format(base=base, host=host, controller=controller, node=node))
    monkeypatch.setenv("SLURM_CONF", str(base / "slurm.conf"))
    files = {
        "key-file": "key",
        "socket": "munge.sock",
        "pid-file": "munged.pid",
        "log-file": "munged.log",
        "seed-file": "seed",
    }
    daemons(munged, "--foreground", "--force", *(f"--{option}={base / name}" for option, name in files.items()))
    until((base / "munge.sock").exists, patience_s=60)
    end = time.monotonic() + 60
    daemons(slurmctld, "-D")
    daemons(slurmd, "-D")
    while time.monotonic() < end:
        said = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True).stdout
        if said.strip() == "idle":
            yield host
            end_jobs(base / "slurm.conf")
            return
        time.sleep(0.2)
    logs = [(base / name).read_text()[-800:] for name in ("slurmctld.log", "slurmd.log") if (base / name).exists()]
    pytest.fail(f"our Slurm did not start: {logs}")


@linux
@pytest.mark.live
@pytest.mark.servers
@pytest.mark.timeout(400)
def test_a_world_that_slurm_itself_started(slurm):
    """One node only: that ranks of several nodes are numbered right, the stand-in and the network namespaces show."""
    with World(profile="slurm", ranks=2, backend="gloo", settings={"partition": "debug", "time": "00:10:00"}) as world:
        found = world.run(who)
        assert [f[:4] for f in found] == [["0", "0", "2", slurm], ["1", "1", "2", slurm]]
        assert {f[5] for f in found} == {3.0} and {f[4] for f in found} != {""}
        queued = subprocess.run(["squeue", "--noheader", "--format=%j %T"], capture_output=True, text=True).stdout
        assert queued.strip() == "allranks RUNNING"
    assert gone([f[6] for f in found]), "the job's engines outlived the world"
    with pytest.raises(ClusterError, match=r"Slurm refused \(sbatch\): .*invalid partition specified: nowhere"):
        World(profile="slurm", ranks=2, backend="gloo", settings={"partition": "nowhere"})


@linux
@pytest.mark.live
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_a_world_over_ssh(held_ports, daemons, short_path, cluster_dir, monkeypatch):
    """An sshd of our own, on a free port of this machine, which goes by two names and so counts as two hosts."""
    sshd, base = program("sshd"), short_path
    (port,) = held_ports(1)
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "me"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / name], check=True)
    options = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": base / "host", "AuthorizedKeysFile": base / "me.pub",
        "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password",
        "PidFile": base / "pid", "Subsystem": "sftp internal-sftp",
    }  # fmt: skip
    (base / "conf").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    daemons(sshd, "-D", "-e", "-f", str(base / "conf"))
    secure = ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={base / 'known'}", "-o", "LogLevel=ERROR"]
    settings = {
        "hosts": {f"localhost:{port}": 1, f"127.0.0.1:{port}": 1},
        "ssh_args": ["-i", str(base / "me"), *secure],
    }
    with World(profile="ssh", backend="gloo", settings=settings) as world:
        found = world.run(who)
        assert [f[:4] for f in found] == [["0", "0", "1", f"localhost:{port}"], ["1", "0", "1", f"127.0.0.1:{port}"]]
        assert {f[4] for f in found} == {"lo"} and {f[5] for f in found} == {3.0}
    assert gone([f[6] for f in found]), "engines outlived the world"
    assert not (Path.home() / ".cache" / "allranks-ssh" / f"{socket.gethostname()}-{os.getpid()}").exists()
    with pytest.raises(ClusterError, match=r"localhost can't run ranks with /no/python: try `ssh .* in a terminal"):
        World(profile="ssh", backend="gloo", settings={**settings, "python": "/no/python"})
    with pytest.raises(ClusterError, match=r"ssh can't reach localhost; try `ssh .*-p 1 localhost true` in a terminal"):
        World(profile="ssh", backend="gloo", settings={**settings, "hosts": {"localhost:1": 2}})
