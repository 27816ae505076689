"""Van de Geijn's broadcast as the course has it: scatter by a tree, then all-gather round a ring."""

from allranks.theory import schedules


def schedule(task):
    return schedules.scatter_allgather_broadcast(task.ranks, root=task.root)
