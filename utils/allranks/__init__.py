"""All Ranks: collective communication, live on real ranks.

    from allranks import World, check, schedules

Every public name is here (docs/api.md lists each): the classes and functions of `_FROM`, and the modules of
`_MODULES` with what their `__all__` names. All of them load when they are first used: importing this package costs no
torch.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# name: the module that defines it
_FROM = {
    "BoardError": "allranks.base.board",
    "CheatSheet": "allranks.show.widgets.cheatsheet",
    "CourseError": "allranks.base.errors",
    "CriticalPath": "allranks.theory.simulator.critical",
    "DeviceError": "allranks.ranks.engines.devices",
    "Drill": "allranks.show.widgets",
    "DrillError": "allranks.show.widgets",
    "Event": "allranks.theory.trace",
    "ExerciseError": "allranks.exercises",
    "Executor": "allranks.machine.bench.executor",
    "Leg": "allranks.theory.simulator.critical",
    "MODELS": "allranks.theory.cost.plan",
    "Message": "allranks.theory.trace",
    "Model": "allranks.theory.cost.plan",
    "MemoryFault": "allranks.ranks.memory",
    "MyModel": "allranks.show.widgets.my_model",
    "NcclRuleError": "allranks.ranks.nccl_rules",
    "OneSided": "allranks.ranks.memory",
    "Plan": "allranks.theory.cost.plan",
    "Player": "allranks.show.player",
    "PlayerError": "allranks.show.player",
    "Prediction": "allranks.show.widgets",
    "PredictionError": "allranks.show.widgets",
    "Question": "allranks.show.widgets",
    "Quiz": "allranks.show.widgets",
    "RankDied": "allranks.ranks.world",
    "RankStatus": "allranks.ranks.world.rank_status",
    "RanksError": "allranks.ranks.world",
    "RanksStuck": "allranks.ranks.world",
    "SITUATIONS": "allranks.show.widgets",
    "Schedule": "allranks.theory.schedules",
    "SharedMemory": "allranks.ranks.memory",
    "SimulateError": "allranks.theory.simulator.simulation",
    "Simulation": "allranks.theory.simulator.simulation",
    "Topology": "allranks.theory.topology",
    "Trace": "allranks.theory.trace",
    "TraceError": "allranks.theory.trace",
    "TrainingStep": "allranks.theory.cost.step",
    "VariantError": "allranks.base.variants",
    "Verdict": "allranks.judge.verdict",
    "WhatIf": "allranks.theory.simulator.variations",
    "World": "allranks.ranks.world",
    "WorldError": "allranks.ranks.world",
    "as_student": "allranks.exercises",
    "check": "allranks.exercises",
    "done": "allranks.course.map.end",
    "execute": "allranks.machine.bench.executor",
    "join_board": "allranks.base.board",
    "leave_board": "allranks.base.board",
    "my_model": "allranks.show.widgets.my_model",
    "plan": "allranks.theory.cost.plan",
    "predict": "allranks.show.widgets",
    "predictions": "allranks.show.widgets",
    "ranked_plans": "allranks.theory.cost.ranking",
    "ready": "allranks.course.handin",
    "run_schedule": "allranks.theory.simulator.simulation",
    "simulate": "allranks.theory.simulator.simulation",
    "training_step": "allranks.theory.cost.step",
}
# name: the module
_MODULES = {
    "bench": "allranks.machine.bench",
    "cost": "allranks.theory.cost",
    "doctor": "allranks.machine.doctor",
    "explore": "allranks.show.widgets.explorables",
    "pipelines": "allranks.theory.pipelines",
    "planted": "allranks.exercises.planted",
    "plots": "allranks.show.plots",
    "profiles": "allranks.jobs",
    "puzzles": "allranks.exercises.puzzles",
    "race": "allranks.theory.race",
    "rooflines": "allranks.theory.cost.rooflines",
    "schedules": "allranks.theory.schedules",
    "topology": "allranks.theory.topology",
    "wire": "allranks.ranks.wire",
    "workload": "allranks.theory.cost.workload",
}

# what `from allranks.NAME import ...` finds as well
_BY_PATH = {**_MODULES, "player": "allranks.show.player"}

__all__ = [*_FROM, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in __all__:
        try:
            if name in _MODULES:
                return importlib.import_module(_MODULES[name])
            return getattr(importlib.import_module(_FROM[name]), name)
        except ModuleNotFoundError as error:
            from allranks.base.extras import extra_of, missing

            if extra_of(error.name or "") is None:
                raise
            raise missing(error.name, name) from None
    if name == "__version__":
        from importlib.metadata import version

        return version("allranks")
    raise AttributeError(f"module 'allranks' has no attribute {name!r}")


class _PublicModules:
    """A finder of modules: `from allranks.schedules import ...` finds a public module in whatever room it lies, as
    the same module.
    """

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The spec of a public module, or of one inside it, by its public name."""
        package, _, inner = name.partition(".")
        public, _, rest = inner.partition(".")
        if package != __name__ or public not in _BY_PATH:
            return None
        real = ".".join([_BY_PATH[public], *([rest] if rest else [])])
        holder, _, last = real.rpartition(".")
        if isinstance(getattr(sys.modules.get(holder), last, sys), ModuleType):
            return ModuleSpec(name, self, loader_state=real)  # type: ignore[arg-type]
        # the import would put the module in the place of the function
        raise ModuleNotFoundError(f"{name} is a function; its module is {real}", name=name)

    def create_module(self, spec: ModuleSpec) -> Any:
        """The module itself, so that its classes are the same by both names."""
        module = importlib.import_module(spec.loader_state)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """The module has run already: it only gets its own spec back."""
        module.__spec__ = self._specs.pop(module.__spec__.name)


sys.meta_path.insert(0, _PublicModules())


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _serve_notebook() -> None:
    from allranks.base.notebook import ipython_shell

    shell = ipython_shell()
    if shell is not None:
        from allranks.base.notebook.follow import follow_cells

        follow_cells(shell)  # first, so that the page says that the cell runs while the rest is imported
        from allranks.ranks.magics import load_ipython_extension

        load_ipython_extension(shell)


_serve_notebook()
