"""The live world: real ranks on engines, with one GPU for each rank, or with gloo on the CPU."""

from allranks.world.cluster import WorldError
from allranks.world.failures import RankDied, RanksError, RanksStuck
from allranks.world.world import World, current

__all__ = ["RankDied", "RanksError", "RanksStuck", "World", "WorldError", "current"]
