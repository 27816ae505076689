# broadcast in a binomial tree
from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p, moves = task.ranks, []
    step = 0
    while 2**step < p:
        for near in range(2**step):
            far = near + 2**step
            if far < p:
                src, dst = (near + task.root) % p, (far + task.root) % p
                moves.append(Move(step, src, dst, (0,)))
        step += 1
    return Schedule("broadcast", "my tree", p, chunks=1, moves=tuple(moves), root=task.root)
