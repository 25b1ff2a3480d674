"""Who may hold which K/V positions. This room keeps the books; it owns no tensor."""

from minibatch.memory.contiguous import RESERVES, ContiguousMemory

__all__ = ["RESERVES", "ContiguousMemory"]
