"""How long a step lasts on a card: overhead + the longer of moving bytes and computing. Introduced in notebook 09.

A roofline (Williams et al., 2009) for one iteration of a decoder: every step reads all weights once, each sequence's
stored K and V once, and computes two operations per weight and token. What it leaves out: kernels that reach less for
small or odd shapes, the sampling of tokens, memory that activations take, and everything a server does on its host
beyond one `overhead`. Notebook 09 shows how far it is from a machine that was measured.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from minibatch.simulate.cards import Deployment
from minibatch.step import Move, StepPlan

BYTES_PER_ACTIVATION = 2


@dataclass(frozen=True)
class Roofline:
    """Seconds of a step. Shares are of what the card's maker names.

    The defaults are usual for a well-kept server on a data-centre card: 80 % of the memory's bandwidth, 55 % of the
    peak, 4 ms of launches and host work. A copy to or from host memory is one transfer for K and one for V of each
    layer and block, each of which costs `transfer_seconds` beside its bytes: small blocks make small, dear transfers.
    """

    deployment: Deployment
    overhead: float = 4e-3  # seconds a step
    bandwidth_share: float = 0.8
    flops_share: float = 0.55
    block_size: int = 16  # K/V positions that a move carries
    transfer_seconds: float = 10e-6
    all_reduce_seconds: float = 10e-6  # each of two a layer, beside its bytes

    def __post_init__(self):
        for field in ("bandwidth_share", "flops_share"):
            if not 0 < getattr(self, field) <= 1:
                raise ValueError(f"{field}={getattr(self, field)!r}: a share, above 0 and at most 1")
        for field in ("overhead", "transfer_seconds", "all_reduce_seconds"):
            if not 0 <= getattr(self, field) < math.inf:
                raise ValueError(f"{field}={getattr(self, field)!r}: must be 0 seconds or more")
        if self.block_size < 1:
            raise ValueError(f"block_size={self.block_size!r}: must be at least 1")

    def seconds(self, plan: StepPlan) -> float:
        """The length of this step."""
        tokens = positions = pairs = 0
        rows = plan.rows
        longest = max(row.count for row in rows) if plan.padded else 0
        for _, _, start, count in rows:
            count = max(count, longest)  # a rectangle's pads are computed like tokens
            tokens += count
            positions += start + count
            pairs += start * count + count * (count + 1) // 2
        seconds = self.computing(tokens, positions, pairs)
        return seconds + self.moving(plan.moves) if plan.moves else seconds

    def computing(self, tokens: int, positions: int, pairs: int) -> float:
        """A step of so many tokens that reads so many K/V positions; `pairs` counts each token with each it looks at.

        A decode at position p has 1 token, p + 1 positions and p + 1 pairs.
        """
        moved = self.weights_seconds + positions * self.position_seconds
        computed = tokens * self.token_seconds + pairs * self.pair_seconds
        return (
            self.overhead + max(moved, computed) + (self.reducing(tokens) if self.deployment.tensor_parallel > 1 else 0)
        )

    def reducing(self, tokens: int) -> float:
        """Adding up the cards' shares, twice a layer: a ring sends each token's values 2 (n - 1) / n times."""
        cards, model = self.deployment.tensor_parallel, self.deployment.model
        sent = 2 * (cards - 1) / cards * tokens * model.hidden * BYTES_PER_ACTIVATION
        return 2 * model.layers * (self.all_reduce_seconds + sent / self.deployment.card.peer_link)

    def moving(self, moves: tuple[Move, ...]) -> float:
        """Blocks copied within the cards, and to and from host memory, before the step computes."""
        swapped = sum(move.kind != "copy" for move in moves)
        copied = 2 * self.block_size * self.position_seconds  # read and written
        return swapped * self.swap_seconds + (len(moves) - swapped) * copied

    @cached_property
    def weights_seconds(self) -> float:
        """Reading all weights."""
        return self.deployment.model.weight_bytes / self._bandwidth

    @cached_property
    def position_seconds(self) -> float:
        """Reading K and V of one position."""
        return self.deployment.model.kv_bytes_per_token / self._bandwidth

    @cached_property
    def token_seconds(self) -> float:
        """Computing all products of one token with the weights."""
        return 2 * self.deployment.model.parameters / self._flops

    @cached_property
    def pair_seconds(self) -> float:
        """Computing what one token owes to one that it looks at: a score and a share of a sum, in each head."""
        model = self.deployment.model
        return 4 * model.layers * model.heads * model.head_dim / self._flops

    @cached_property
    def swap_seconds(self) -> float:
        """Moving one block to or from host memory; the cards move their shares at the same time."""
        model, where = self.deployment.model, self.deployment
        bytes_moved = self.block_size * model.kv_bytes_per_token / where.tensor_parallel
        return 2 * model.layers * self.transfer_seconds + bytes_moved / where.card.host_link

    @cached_property
    def _bandwidth(self) -> float:
        return self.deployment.card.bandwidth * self.bandwidth_share * self.deployment.tensor_parallel

    @cached_property
    def _flops(self) -> float:
        return self.deployment.card.flops * self.flops_share * self.deployment.tensor_parallel
