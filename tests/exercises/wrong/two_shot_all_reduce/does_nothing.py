"""Does nothing.

Must get: no rank put or got anything
Must not get: sent a message
"""


def two_shot_all_reduce(tensor, memory):
    return
