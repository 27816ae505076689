"""An all-gather on a DGX-1 that nobody wrote: found by search in three steps, with the least bytes on every link.

SCCL's solver looked for algorithms of this kind; this one is from `schedules.search_all_gather`. Over a single NVLink go 2, 3 and 2 of the
six chunks of a part, over a double one twice as many: seven rounds, and 7 parts must enter a GPU over 6 NVLinks.
"""

from allranks.theory import schedules


def schedule(task):
    lanes = [[0] * task.ranks for _ in range(task.ranks)]
    slowest = min(link.bytes_per_s for link in task.fabric.links.values())
    for (_, src, dst), link in task.fabric.links.items():
        lanes[src][dst] = link.bytes_per_s // slowest
    return schedules.search_all_gather(lanes, chunks=6, rounds=(2, 3, 2))
