"""Its own tensor times p.

Must get: own tensor times p
"""


def two_shot_all_reduce(tensor, memory):
    tensor.mul_(memory.ranks)
