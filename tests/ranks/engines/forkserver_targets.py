"""What the fork server's children run in test_forkserver.py."""

import os
import random
import signal
import subprocess
import sys
import time


def write_environment(args, fds):
    import torch

    words = [os.environ["RANK"], os.getcwd(), args["word"], str(random.random()), str(torch.rand(1).item())]
    os.write(fds[0], "\n".join(words).encode())


def write_modules(args, fds):
    os.write(fds[0], " ".join(name for name in args if name in sys.modules).encode())


def leave_a_process_behind(args, fds):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    os.write(fds[0], str(process.pid).encode())


def end(args, fds):
    if args == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if args == "raise":
        raise ValueError("as asked")
    sys.exit(args)


def sleep(args, fds):
    time.sleep(600)
