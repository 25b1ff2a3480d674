"""Who may hold which K/V positions. This room keeps the books; it owns no tensor."""

from minibatch.memory.contiguous import RESERVES, ContiguousMemory
from minibatch.memory.paged import PagedMemory

Memory = ContiguousMemory | PagedMemory

__all__ = ["RESERVES", "ContiguousMemory", "Memory", "PagedMemory"]
