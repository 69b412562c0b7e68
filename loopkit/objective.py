"""The training loss: supervision plus regularizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from loopkit.components.regularizer import Regularized, Regularizer
from loopkit.components.supervision import Supervision
from loopkit.errors import UserError
from loopkit.loop import Trajectory
from loopkit.recipe import format as recipe


@dataclass(frozen=True)
class ObjectiveOutput:
    """The result of an objective; everything except ``loss`` is detached.

    Args:
        loss: fp32 scalar to differentiate.
        supervised: The loss of the supervision only, in nats per scored token.
        ce: Cross-entropy of each loop that was read, in nats per scored token.
        regularizers: Unweighted value of each regularizer that was active, and its terms as ``NAME/TERM``, times its
            share of the step: their mean over micro-batches is the value of the whole batch.
        terms: Other values of the supervision.
    """

    loss: Tensor
    supervised: Tensor
    ce: dict[int, Tensor]
    regularizers: dict[str, Tensor]
    terms: dict[str, Tensor]


class Objective(nn.Module):
    """Supervision and regularizers as one loss, for exactly one backward pass.

    total = (1 - sum of convex weights) * share * supervised + sum_i weight_i * share_i * R_i

    A regularizer that is not active at a step is excluded from both sums.

    Args:
        supervision: The loss over the loops.
        regularizers: By the name under which they are logged.

    Raises:
        UserError: If the convex weights exceed 1.
    """

    def __init__(self, supervision: Supervision, regularizers: Mapping[str, Regularizer] | None = None) -> None:
        super().__init__()
        self.supervision = supervision
        self.regularizers = nn.ModuleDict(dict(regularizers or {}))
        convex = sum(term.weight for _, term in self._terms() if term.mix == "convex")
        if convex > 1:
            raise UserError(f"objective: the convex weights add up to {convex:g}; they must not exceed 1")

    def forward(
        self, trajectory: Trajectory, optimizer_step: int, share: float = 1.0, token_share: float = 1.0
    ) -> ObjectiveOutput:
        """Compute the loss of a trajectory.

        Args:
            trajectory: One forward pass.
            optimizer_step: Number of the step, from 0; regularizers may start late or be inactive.
            share: Factor on the supervised part: scored tokens here * micro-batches / scored tokens of the whole step,
                so that micro-batches with unequal numbers of them add up to the gradient of the full batch.
            token_share: The same of real tokens, for regularizers that are means over tokens.
        """
        supervised = self.supervision(trajectory)
        active = [(name, term) for name, term in self._terms() if term.active(optimizer_step)]
        shares = {"tokens": token_share, "sequences": 1.0, "micro_batch": 1.0}
        values: dict[str, Tensor] = {}
        logged: dict[str, Tensor] = {}
        for name, term in active:
            result = Regularized.of(term(trajectory))
            values[name] = shares[term.mean_over] * result.value
            parts = {f"{name}/{part}": shares[term.mean_over] * value for part, value in result.terms.items()}
            logged |= {name: values[name]} | parts
        convex = sum(term.weight for _, term in active if term.mix == "convex")
        loss = (1 - convex) * share * supervised.loss
        for name, term in active:
            loss = loss + term.weight * values[name]
        return ObjectiveOutput(
            loss=loss,
            supervised=supervised.loss.detach(),
            ce=supervised.ce,
            regularizers={name: value.detach() for name, value in logged.items()},
            terms=supervised.terms,
        )

    def _terms(self) -> list[tuple[str, Regularizer]]:
        return [(name, term) for name, term in self.regularizers.items() if isinstance(term, Regularizer)]


def build_objective(objective: recipe.ObjectiveConfig) -> Objective:
    """Build the ``objective`` section of a recipe."""
    regularizers = {name: spec.build() for name, spec in objective.regularizers.items()}
    return Objective(objective.supervision.build(), regularizers)
