"""All Ranks: collective communication, live on real ranks.

    from allranks import World, check, schedules

Every public name is here (docs/api.md describes each): the classes and functions of `_FROM`, and the modules of `_MODULES`
with what their `__all__` names. All of them load when they are first used: importing this package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

# name: the module that defines it
_FROM = {
    "BoardError": "allranks.board",
    "CheatSheet": "allranks.widgets.cheatsheet",
    "CourseError": "allranks.errors",
    "CriticalPath": "allranks.simulator",
    "DeviceError": "allranks.engines.devices",
    "Drill": "allranks.widgets",
    "DrillError": "allranks.widgets",
    "Event": "allranks.trace",
    "ExerciseError": "allranks.exercises",
    "Executor": "allranks.bench.executor",
    "Leg": "allranks.simulator",
    "MODELS": "allranks.cost.plan",
    "Message": "allranks.trace",
    "Model": "allranks.cost.plan",
    "MemoryFault": "allranks.memory",
    "MyModel": "allranks.widgets.my_model",
    "NcclRuleError": "allranks.nccl_rules",
    "OneSided": "allranks.memory",
    "Plan": "allranks.cost.plan",
    "Player": "allranks.player",
    "PlayerError": "allranks.player",
    "Prediction": "allranks.widgets",
    "PredictionError": "allranks.widgets",
    "Question": "allranks.widgets",
    "Quiz": "allranks.widgets",
    "RankDied": "allranks.world",
    "RankStatus": "allranks.world.rank_status",
    "RanksError": "allranks.world",
    "RanksStuck": "allranks.world",
    "SITUATIONS": "allranks.widgets",
    "Schedule": "allranks.schedules",
    "SharedMemory": "allranks.memory",
    "SimulateError": "allranks.simulator",
    "Simulation": "allranks.simulator",
    "Topology": "allranks.topology",
    "Trace": "allranks.trace",
    "TraceError": "allranks.trace",
    "TrainingStep": "allranks.cost.step",
    "VariantError": "allranks.course.variants",
    "Verdict": "allranks.checking.verdict",
    "WhatIf": "allranks.simulator",
    "World": "allranks.world",
    "WorldError": "allranks.world",
    "as_student": "allranks.exercises",
    "check": "allranks.exercises",
    "done": "allranks.course_map.end",
    "execute": "allranks.bench.executor",
    "join_board": "allranks.board",
    "leave_board": "allranks.board",
    "my_model": "allranks.widgets.my_model",
    "plan": "allranks.cost.plan",
    "predict": "allranks.widgets",
    "predictions": "allranks.widgets",
    "ranked_plans": "allranks.cost.ranking",
    "run_schedule": "allranks.simulator",
    "simulate": "allranks.simulator",
    "training_step": "allranks.cost.step",
}
# name: the module
_MODULES = {
    "bench": "allranks.bench",
    "cost": "allranks.cost",
    "doctor": "allranks.doctor",
    "explore": "allranks.widgets.explorables",
    "pipelines": "allranks.pipelines",
    "plots": "allranks.plots",
    "profiles": "allranks.profiles",
    "race": "allranks.race",
    "rooflines": "allranks.cost.rooflines",
    "schedules": "allranks.schedules",
    "topology": "allranks.topology",
    "wire": "allranks.wire",
    "workload": "allranks.cost.workload",
}

__all__ = [*_FROM, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in __all__:
        try:
            if name in _MODULES:
                return importlib.import_module(_MODULES[name])
            return getattr(importlib.import_module(_FROM[name]), name)
        except ModuleNotFoundError as error:
            from allranks.extras import extra_of, missing

            if extra_of(error.name or "") is None:
                raise
            raise missing(error.name, name) from None
    if name == "__version__":
        from importlib.metadata import version

        return version("allranks")
    raise AttributeError(f"module 'allranks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _serve_notebook() -> None:
    from allranks.notebook import ipython_shell

    shell = ipython_shell()
    if shell is not None:
        from allranks.notebook.follow import follow_cells

        follow_cells(shell)  # first, so that the page says that the cell runs while the rest is imported
        from allranks.magics import load_ipython_extension

        load_ipython_extension(shell)


_serve_notebook()
