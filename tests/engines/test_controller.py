"""The controller's ports stay its own from the moment it has them, however many start at the same time."""

import os
import shutil
import subprocess
import sys

import pytest

# in a network of its own that has 64 ports to give away, half of them to sockets that may share
IN_A_SMALL_NETWORK = """
import pathlib, socket, zmq
from unittest import mock
from ipyparallel import util
from allranks.engines import controller

pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40063")
with mock.patch.object(controller, "IPController"):
    controller.run({"argv": []}, [])
held = [p for _ in range(5) for p in util.select_random_ports(4)]
others = []
while True:
    asker = socket.socket()
    try:
        asker.bind(("", 0))
    except OSError:  # there are no more
        break
    others.append(asker)
print(len(set(held)), len(set(held) & {other.getsockname()[1] for other in others}), len(others) > 20)
for port in held:
    zmq.Context.instance().socket(zmq.ROUTER).bind(f"tcp://*:{port}")
print("listens")
"""


def test_ports_are_not_given_to_others_before_it_listens():
    alone = ["unshare", "--net", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip(
            "no network of its own can be had here: it needs unshare (util-linux) and, unless root, user namespaces"
        )
    ran = subprocess.run([*alone, sys.executable, "-c", IN_A_SMALL_NETWORK], capture_output=True, text=True)
    assert ran.stdout.split("\n")[:2] == ["20 0 True", "listens"], ran.stdout + ran.stderr
