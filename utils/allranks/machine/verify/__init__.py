"""Proves a machine in ten minutes, with a GPU or without: `allranks verify`.

A step is a small function with a name and a time limit. Steps run in a process of their own: one that raises, hangs or dies
is written down, and the next step gets a new process with a new world. After every step the record is on the disk.

- `steps`: what a step is, what it gets to work with, and how it ends.
- `machine`, `calls`, `faults`, `sweeps`, `chapters`: the steps of each phase, and on the ranks the functions that they call.
- `worker`: the process that carries out steps, and its parent's end.
- `record`: what was found, as JSON and as Markdown.
- `run`: which steps there are, and one run of them.
"""

from allranks.machine.verify.record import Record
from allranks.machine.verify.run import ALL_STEPS, VerifyError, choose, verify
from allranks.machine.verify.steps import PHASES, Outcome, Plan, Step, StepFailed, StepSkipped

__all__ = [
    "ALL_STEPS",
    "PHASES",
    "Outcome",
    "Plan",
    "Record",
    "Step",
    "StepFailed",
    "StepSkipped",
    "VerifyError",
    "choose",
    "verify",
]
