"""Kernels forked from the fork server behave as launched ones: run, interrupt, restart, end; and what can't be forked is launched."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from allranks.ranks.engines import kernels
from allranks.ranks.engines.forkserver.client import ForkServer
from jupyter_client import KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from waiting import until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


@pytest.fixture(scope="module")
def forkserver():
    started = ForkServer.start()
    started.wait_warm()
    yield started
    started.close()


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Starts a kernel as `allranks lab` has Jupyter start them; a function that runs code there and gives what it printed."""
    monkeypatch.setattr(KernelProvisionerFactory.instance(), "default_provisioner_name", kernels.NAME)
    managers = []

    def begin(
        shared: str | None, command: list[str] | None = None, directory: Path | None = None, cwd: Path = tmp_path
    ) -> tuple[KernelManager, Callable[[str], str]]:
        manager = KernelManager(kernel_name="python3")
        if directory:
            manager.transport, manager.connection_file = "ipc", str(directory / "kernel.json")
            manager.ip = str(directory / "kernel-ipc")
        managers.append(manager)
        manager.kernel_spec.argv = command or manager.kernel_spec.argv
        env = {name: value for name, value in os.environ.items() if name != "ALLRANKS_FORKSERVER"}
        manager.start_kernel(env=env | ({"ALLRANKS_FORKSERVER": shared} if shared else {}), cwd=str(cwd))
        return manager, lambda code: run(manager, code)

    yield begin
    for manager in managers:
        provisioner = manager.provisioner
        manager.shutdown_kernel(now=True)
        assert not getattr(provisioner, "_held", None), "it keeps the ports of a kernel that has ended"


def run(manager: KernelManager, code: str) -> str:
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        said = []
        client.execute_interactive(
            code,
            timeout=60,
            output_hook=lambda m: said.append(m["content"].get("text") or m["content"].get("ename", "")),
        )
        return "".join(said).strip()
    finally:
        client.stop_channels()


def kernel_of(manager: KernelManager) -> psutil.Process:
    return psutil.Process(manager.provisioner.pid)


def test_a_kernel_reads_no_module_until_somebody_debugs(forkserver, start):
    """To read them all copies 15 MB of what the kernel shares with the fork server."""
    _, say = start(str(forkserver.path))
    code = """
        import wave
        kernel = get_ipython().kernel
        listed = kernel.debugger.kernel_modules
        print(kernel._kernel_modules, __import__("ipykernel").__file__ in listed, wave.__file__ in listed, len(listed) > 1000)
    """
    assert say(textwrap.dedent(code)).split() == ["[]", "True", "False", "True"]


def test_it_is_a_fork_in_which_everything_is_as_in_a_launched_kernel(forkserver, start, tmp_path):
    forked, there = start(str(forkserver.path))
    launched, elsewhere = start(None)
    assert kernel_of(forked).ppid() == forkserver.pid and kernel_of(launched).ppid() == os.getpid()
    assert there("pass") == "" and kernel_of(forked).name() == "ipykernel"
    assert there("import sys; print('torch' in sys.modules)") == "True"
    assert elsewhere("import sys; print('torch' in sys.modules)") == "False"
    for code in (
        "print(sys.path, sys.argv[0].rpartition('/')[2].removesuffix('.py'))",
        "import os; print(os.getcwd(), os.getpgid(0) == os.getpid())",
        "import allranks; print(sorted(allranks.__all__))",
        "print(sorted(get_ipython().magics_manager.magics['cell']))",
        "import torch; print(torch.get_num_threads(), torch.utils.data.get_worker_info())",
        "import matplotlib.pyplot as plt; print(plt.get_backend())",
        "!echo from a child process",
    ):
        assert there(code) == elsewhere(code) != "", code
    assert there("print(os.getcwd())") == str(tmp_path)
    random = "import random, numpy; print(random.random(), numpy.random.rand(), torch.rand(1).item())"
    _, third = start(str(forkserver.path))
    assert not set(there(random).split()) & set(third(f"import torch; {random}").split())


@pytest.mark.parametrize("forked", [True, False])
@pytest.mark.parametrize(
    ("folder", "runs"), [("submitted/hal/lab", False), ("autograded/hal/lab", False), ("mine", True)]
)
def test_a_file_beside_a_notebook_that_was_handed_in_is_no_module(forkserver, start, tmp_path, forked, folder, runs):
    """IPython imports jedi when somebody types: a student's jedi.py would run in the teacher's kernel."""
    beside = tmp_path / folder / "jedi.py"
    beside.parent.mkdir(parents=True)
    beside.write_text("")
    _, say = start(str(forkserver.path) if forked else None, cwd=beside.parent)
    found = Path(say("import jedi; print(jedi.__file__)"))
    assert (found == beside) == runs and found.is_file()


def test_it_can_be_interrupted_restarted_and_shut_down(forkserver, start):
    manager, there = start(str(forkserver.path))
    first = kernel_of(manager)
    assert there("x = 1; print(x)") == "1"
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    number = client.execute("import time; print('on its way', flush=True); time.sleep(600)")
    while client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=60)
    client.stop_channels()
    assert reply["parent_header"]["msg_id"] == number and reply["content"]["ename"] == "KeyboardInterrupt"
    assert there("print(x)") == "1"
    manager.restart_kernel()
    second = kernel_of(manager)
    assert second.pid != first.pid and second.ppid() == forkserver.pid
    assert there("print(x)") == "NameError"
    manager.shutdown_kernel()
    assert psutil.wait_procs([first, second], timeout=60)[1] == []
    assert forkserver.alive and not manager.has_kernel


def test_a_kernel_that_kills_itself_is_known_to_be_dead(forkserver, start):
    manager, _ = start(str(forkserver.path))
    assert manager.is_alive()
    kernel_of(manager).send_signal(signal.SIGKILL)
    until(lambda: not manager.is_alive())


def test_what_it_says_to_its_descriptors_goes_where_the_servers_goes(forkserver, start, capfd):
    manager, there = start(str(forkserver.path))
    there("import sys; sys.__stderr__.write('a line of a C library\\n'); sys.__stderr__.flush()")
    manager.shutdown_kernel()
    assert "a line of a C library" in capfd.readouterr().err


def test_where_no_parent_can_be_reached_it_is_launched_and_says_so(start, tmp_path, caplog):
    manager, there = start(str(tmp_path / "gone.sock"))
    assert kernel_of(manager).ppid() == os.getpid()
    assert there("print(6 * 7)") == "42"
    assert "The kernel is not forked from the fork server but launched" in caplog.text


def test_a_second_parent_of_one_process_leaves_the_first_in_its_place(start):
    first, second = ForkServer.start(), ForkServer.start()
    try:
        for forkserver in (first, second):
            manager, _ = start(str(forkserver.path))
            assert kernel_of(manager).ppid() == forkserver.pid
        manager.shutdown_kernel(now=True)
        second.close()
        manager, _ = start(str(first.path))
        assert kernel_of(manager).ppid() == first.pid
    finally:
        second.close()
        first.close()


def test_a_kernel_that_is_another_programs_is_launched(forkserver, start, tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    for command in (
        [str(other), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        [sys.executable, "-Xutf8", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    ):
        manager, _ = start(str(forkserver.path), command)
        assert kernel_of(manager).ppid() == os.getpid()


SERVER = """
import os, sys
from jupyter_client import KernelManager
manager = KernelManager(kernel_name="python3")
manager.start_kernel(stdout=None)
print(manager.provisioner.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["server", "forkserver"])
def test_it_ends_with_the_server_and_with_the_parent(end, tmp_path):
    forkserver = ForkServer.start()
    forkserver.wait_warm()
    # killed, it leaves its kernel's connection file behind
    env = os.environ | {
        "ALLRANKS_FORKSERVER": str(forkserver.path),
        kernels.NAME_ENV: kernels.NAME,
        "TMPDIR": str(tmp_path),
    }
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            kernel = psutil.Process(int(server.stdout.readline()))
            assert kernel.ppid() == forkserver.pid
            os.kill(server.pid if end == "server" else forkserver.pid, signal.SIGKILL)
            assert psutil.wait_procs([kernel], timeout=60)[1] == []
        finally:
            server.kill()
            forkserver.close()


def test_a_user_who_named_another_way_keeps_it(monkeypatch):
    monkeypatch.setenv(kernels.NAME_ENV, "local-provisioner")
    kernels.name_to_jupyter()
    assert os.environ[kernels.NAME_ENV] == "local-provisioner"
    monkeypatch.delenv(kernels.NAME_ENV)
    kernels.name_to_jupyter()
    assert os.environ[kernels.NAME_ENV] == "allranks-warm"


# what a fork of the kernel's prints goes through the socket that is beside the kernel's others
FORK = """
import os
pid = os.fork()
if pid == 0:
    print("from a fork", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("forked", [True, False])
def test_a_kernel_on_unix_sockets_has_no_port_at_all(forkserver, start, short_path, forked):
    """Any account of the machine could connect to one, and send what the kernel would keep in memory."""
    manager, _ = start(str(forkserver.path) if forked else None, directory=short_path)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.execute(FORK)
    # the kernel may say that it is done before it has sent on what its child has printed
    while (message := client.get_iopub_msg(timeout=60))["msg_type"] != "stream":
        pass
    client.stop_channels()
    assert message["content"]["text"].strip() == "from a fork"
    kernel = kernel_of(manager)
    assert kernel.ppid() == (forkserver.pid if forked else os.getpid())
    assert [c.laddr for c in kernel.net_connections("inet") if c.status == psutil.CONN_LISTEN] == []
    names = {path.name.rpartition("-")[2] for path in short_path.iterdir() if path.is_socket()}
    assert names == {"1", "2", "2p", "3", "4", "5"}


def test_what_a_cell_leaves_in_the_background_goes_on_when_a_rank_ends(forkserver, start):
    _, there = start(str(forkserver.path))
    begin = "s.run('sleep 60 >/dev/null 2>&1 & echo $!', shell=True, capture_output=True, text=True).stdout"
    left = psutil.Process(int(there(f"import subprocess as s; print({begin})")))
    forkserver.spawn("builtins:print", args="ended").wait(60)
    forkserver.spawn("builtins:print", args="ended").wait(60)  # by now the first one's end was dealt with
    assert left.is_running()
    left.kill()
