"""The race: schedules for tasks on machines of up to 4096 ranks, by their time in the clock against the lower bound.

`judge(schedule, task)` scores a schedule here; `allranks race TASK FILE` scores a file. docs/race.md has the rules.
"""

from allranks.theory.race.scoring import Result, judge
from allranks.theory.race.tasks import TASKS, RaceError, Task, task

__all__ = ["TASKS", "RaceError", "Result", "Task", "judge", "task"]
