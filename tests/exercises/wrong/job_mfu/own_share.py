"""Does not ask anybody.

Must get: own share
"""


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    total, slowest = tokens.double().contiguous(), seconds.clone().contiguous()
    flop = total / ranks_per_replica * flop_per_token
    return flop / (slowest * flop_per_s)
