"""NOT Slurm: a stand-in for sbatch, srun, squeue and scancel that runs jobs at once, as processes of this machine.

It reads the script that ipyparallel writes, sets the variables that Slurm sets (by the names of its manual pages), and starts
the tasks. It shows that the script starts engines that are numbered rightly; that Slurm accepts it, only Slurm can show.
A test installs four programs that call it, each with its name first. Jobs are kept under $STAND_IN_JOBS.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

JOBS = Path(os.environ.get("STAND_IN_JOBS", "/nonexistent"))


def sbatch(script: str) -> int:
    """Starts the script in the background; prints the line that Slurm prints."""
    text = Path(script).read_text()
    said = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, flags=re.M))
    if said.get("partition") not in (None, "debug"):
        print(f"sbatch: error: invalid partition specified: {said['partition']}", file=sys.stderr)
        return 1
    number = 1 + len(list(JOBS.glob("*.sbatch")))
    env = {
        **os.environ,
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NUM_NODES": said["nodes"],
        "SLURM_NTASKS": said["ntasks"],
    }
    with open(said["output"], "wb") as log:
        child = subprocess.Popen(["sh", script], env=env, stdout=log, stderr=log, start_new_session=True)
    (JOBS / str(number)).write_text(str(child.pid))
    (JOBS / f"{number}.sbatch").write_text(text)
    print(f"Submitted batch job {number}")
    return 0


def srun(*command: str) -> int:
    """Starts the tasks, block by block over the nodes; waits for them."""
    words = list(command)
    while words[0].startswith("--"):
        words.pop(0)
    tasks, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_JOB_NUM_NODES"])
    running = []
    for task in range(tasks):
        node, local = divmod(task, tasks // nodes)
        env = {"SLURM_PROCID": str(task), "SLURM_LOCALID": str(local), "SLURMD_NODENAME": f"standin{node}"}
        running.append(subprocess.Popen(words, env={**os.environ, **env}))
    return max(process.wait() for process in running)


def squeue(*arguments: str) -> int:
    """The job's state, without the reason."""
    job = JOBS / arguments[arguments.index("--job") + 1]
    try:
        os.kill(int(job.read_text()), 0)
        print("RUNNING None")
    except ProcessLookupError:
        print("FAILED NonZeroExitCode")
    return 0


def scancel(*arguments: str) -> int:
    """Ends the job's processes."""
    try:
        os.killpg(int((JOBS / arguments[-1]).read_text()), signal.SIGKILL)
    except ProcessLookupError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
