"""Memory that ranks of one machine share: puts, gets, fences and signals in place of messages.

    from allranks import SharedMemory
    memory = SharedMemory(1024)        # on every rank: 1024 elements for each
    memory.put(peer, 0, values); memory.fence(); memory.signal(peer)

`OneSided` is what every such memory can do; the wire has one more, with weak order and a judge of races (`wire.Memory`).
"""

from allranks.ranks.memory.one_sided import MemoryFault, OneSided
from allranks.ranks.memory.shared import SharedMemory

__all__ = ["MemoryFault", "OneSided", "SharedMemory"]
