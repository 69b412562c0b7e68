"""The learned exit gate. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.loop import Step, Trajectory, widen
from loopkit.registry import register


class Gate(nn.Module):
    """Computes how ready each token is to stop, and may stop sequences in training.

    Wiring: ``width``. A gate states ``provides={"gate"}``. Its logits are read by supervisions and exits
    (``t.gate(k)``), and by a core that asks for them (``step.gate(s)``).
    """

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        """Exit logits.

        Args:
            s: ``[B, T, D]``, what the core emits of the state.
            read: ``read()`` gives what the head sees of it, ``z_k``, ``[B, T, D]``; computed if asked for.
            step: The loop that the state belongs to.

        Returns:
            ``[B, T]``, at least fp32; the probability of stopping is their sigmoid.
        """
        raise NotImplementedError

    def stop(self, t: Trajectory, k: int) -> Tensor | None:
        """Which sequences end their loops in training after loop ``k``, as PonderNet draws it and ACT decides it.

        Asked after each loop but the last, in training alone: in evaluation an ``exit`` decides. A sequence that ended
        is computed no further, shows its last state in later loops, and counts in the loops that it ran (``t.ran``).
        The pass still has ``t.loops.total`` loops, of one sequence where none is left, so that ranks stay in step. All
        loops must carry gradient (``train.backprop: all``). Random numbers come from ``t.loop_noise(k)``.

        Args:
            t: The pass, which has run ``k`` loops: ``t.gate(j)``, ``t.state(j)``, ``t.readout(j)`` for ``j <= k``.
            k: The loop just run.

        Returns:
            ``[B]`` bool, of all sequences of the batch; those that ended before are ignored. ``None``: nobody ends.
        """
        return None


@register("gate", "none")
class NoGate(Gate):
    """The model has no gate; asking it for one is an error."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        raise UserError("this model has no exit gate; set model.gate, for instance to 'linear'")


@register("gate", "linear", paper="arXiv:2510.25741", provides={"gate"})
class LinearGate(Gate):
    """One linear map to a logit.

    g_k = w · h_k + b,   exit probability sigmoid(g_k)

    Args:
        reads: ``state`` reads the raw state, ``readout`` what the head sees (Ouro).
    """

    def __init__(self, width: int, *, reads: Literal["state", "readout"] = "state") -> None:
        super().__init__()
        self.reads = reads
        self.linear = nn.Linear(width, 1)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return widen(self.linear(s if self.reads == "state" else read()).squeeze(-1))
