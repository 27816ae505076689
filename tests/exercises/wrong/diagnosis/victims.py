"""Blames the rank that complains.

Must get: not the one to blame
"""

EVERY = -1


def diagnosis(program):
    return {
        "count_samples": (EVERY, 4, 1),
        "mean_loss": (0, 4, 3),
        "mirror": (EVERY, 8, 5),
        "share_settings": (0, 5, 4),
        "hand_out": (0, 10, 6),
        "mean_of_samples": (0, 4, 8),
    }[program]
