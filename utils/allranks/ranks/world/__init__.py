"""The live world: real ranks on engines, with one GPU for each rank, or with gloo on the CPU."""

from allranks.ranks.world.cluster import WorldError
from allranks.ranks.world.failures import RankDied, RanksError, RanksStuck
from allranks.ranks.world.world import World, current

__all__ = ["RankDied", "RanksError", "RanksStuck", "World", "WorldError", "current"]
