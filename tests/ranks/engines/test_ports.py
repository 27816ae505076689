"""The ports of controllers and of forked kernels are theirs before they listen, however many start at the same time."""

import os
import shutil
import subprocess
import sys

import pytest

# in a network of its own that has 64 ports to give away; `held` are ours
SMALL_NETWORK = """
import asyncio, pathlib, socket, zmq
from unittest import mock

pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40063")
{hold}
others = []
while True:
    asker = socket.socket()
    try:
        asker.bind(("", 0))
    except OSError:  # there are no more
        break
    others.append(asker)
print(len(set(held)), len(set(held) & {{other.getsockname()[1] for other in others}}), len(others) > 20)
for port in held:
    zmq.Context.instance().socket(zmq.ROUTER).bind(f"tcp://*:{{port}}")
print("listens")
"""
CONTROLLER = """
from ipyparallel import util
from allranks.ranks.engines import controller
with mock.patch.object(controller, "IPController"):
    controller.run({"argv": []}, [])
held = [port for _ in range(5) for port in util.select_random_ports(4)]
"""
KERNEL = """
from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from allranks.ranks.engines.kernels import NAME
KernelProvisionerFactory.instance().default_provisioner_name = NAME
manager = AsyncKernelManager(kernel_name="python3", ip="0.0.0.0")
async def before_it_starts():
    await manager.pre_start_kernel()
asyncio.run(before_it_starts())
held = [manager.shell_port, manager.iopub_port, manager.stdin_port, manager.hb_port, manager.control_port]
manager.cleanup_connection_file()
"""


@pytest.mark.parametrize(("hold", "many"), [(CONTROLLER, 20), (KERNEL, 5)], ids=["controller", "kernel"])
def test_ports_are_not_given_to_others_before_it_listens(hold, many):
    alone = ["unshare", "--net", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no network of its own can be had: it needs unshare (util-linux) and, unless root, user namespaces")
    code = SMALL_NETWORK.format(hold=hold)
    ran = subprocess.run([*alone, sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.split("\n")[:2] == [f"{many} 0 True", "listens"], ran.stdout + ran.stderr
