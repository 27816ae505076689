"""Looks in the own shard.

Must get: rank's own shard
"""


def embedding_lookup(ids, shard):
    return shard[ids % len(shard)]
