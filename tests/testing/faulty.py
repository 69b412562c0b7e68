"""Components with one fault each, after which they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from loopkit.components.attention import Attention
from loopkit.components.carry import Carry
from loopkit.components.exit import Exit
from loopkit.components.gate import Gate
from loopkit.components.init import Init, InitContext
from loopkit.components.injection import Injection
from loopkit.components.lr import LearningRate
from loopkit.components.mlp import Mlp
from loopkit.components.norm import Norm
from loopkit.components.optimizer import OptimizerRule, ParameterGroup
from loopkit.components.placement import Placement
from loopkit.components.probe import Probe, ProbeResult
from loopkit.components.readout import Readout
from loopkit.components.regularizer import Regularizer, over_tokens
from loopkit.components.schedule import Schedule
from loopkit.components.source import Document, Source, Span
from loopkit.components.start import Start
from loopkit.components.supervision import Supervised, Supervision
from loopkit.components.task import Answer, Corpus, Request, Task
from loopkit.components.tokenizer import Lost
from loopkit.components.tokenizer.bytes import Bytes
from loopkit.components.tracker import RunInfo, Tracker
from loopkit.loop import Batch, LoopedModelProtocol, Loops, Step, Tally, Trajectory
from loopkit.registry import register


@register("readout", "leaks_the_future")
class LeaksTheFuture(Readout):
    """Adds the mean over all tokens."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h + h.mean(dim=1, keepdim=True)


@register("readout", "keeps_state")
class KeepsState(Readout):
    """Adds the number of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.empty(()))

    def reset_parameters(self) -> None:
        self.calls.zero_()

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        self.calls += 1
        return h + 0.01 * self.calls


@register("norm", "wrong_dtype")
class WrongDtype(Norm):
    """Returns half precision."""

    def forward(self, x: Tensor) -> Tensor:
        return (x / x.square().mean(dim=-1, keepdim=True).sqrt()).half()


@register("start", "ignores_its_seed", lacks={"streams"})
class IgnoresItsSeed(Start):
    """Draws from torch's global random state."""

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return e + torch.randn_like(e)


@register("start", "false_training_noise", noise="training", lacks={"streams"})
class FalseTrainingNoise(Start):
    """States noise in training, but draws no random numbers."""

    def forward(self, e: Tensor, step: Step) -> Tensor:
        return e


@register("gate", "stops_at_random", provides={"gate"}, stops=True)
class StopsAtRandom(Gate):
    """Stops sequences by torch's global random state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return self.linear(s).squeeze(-1).to(torch.promote_types(s.dtype, torch.float32))

    def stop(self, t: Trajectory, k: int) -> Tensor:
        return torch.rand(len(t.batch)) < 0.5


@register("gate", "unstated_stop", provides={"gate"})
class UnstatedStop(StopsAtRandom):
    """Stops sequences without stating stops."""


@register("injection", "forgets_streams")
class ForgetsStreams(Injection):
    """Adds the input as if the state had no streams."""

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c + e


@register("mlp", "unused_parameter")
class UnusedParameter(Mlp):
    """Has a matrix that forward does not use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(x.tanh())


@register("mlp", "wrong_shape")
class WrongShape(Mlp):
    """Returns twice the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(x)


@register("carry", "in_place")
class InPlace(Carry):
    """Halves the state in place."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s.mul_(0.5)


@register("injection", "batch_dependent", lacks={"streams"})
class BatchDependent(Injection):
    """Subtracts the mean over the batch."""

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c + e - e.mean(dim=0, keepdim=True)


@register("carry", "loose_state")
class LooseState(Carry):
    """Counts its training calls in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        if self.training:
            self.seen += 1
        return s


@register("schedule", "misdeclared_mean")
class MisdeclaredMean(Schedule):
    """Declares the mean before clipping."""

    def __init__(self) -> None:
        self.bounds, self.mean = (1, 4), 3.5

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return np.clip(rng.poisson(3.5 * scale, size=count), 1, 4).astype(np.int64)


@register("schedule", "global_seed")
class GlobalSeed(Schedule):
    """Draws from numpy's global random state."""

    def __init__(self) -> None:
        self.bounds, self.mean = (1, 4), 2.5

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return np.random.randint(1, 5, size=count).astype(np.int64)


@register("schedule", "out_of_bounds")
class OutOfBounds(Schedule):
    """Draws one more than it declares."""

    def __init__(self) -> None:
        self.bounds, self.mean = (1, 3), 2.5

    def draw(self, rng: np.random.Generator, count: int, scale: float = 1.0) -> np.ndarray:
        return rng.integers(1, 5, size=count)


class _Square(torch.autograd.Function):
    """x² whose backward pass leaves the graph."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


@register("carry", "once_differentiable")
class OnceDifferentiable(Carry):
    """Uses a function that can be differentiated once, without stating it."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s + 0.1 * _Square.apply(s.tanh())


class _Detached(torch.autograd.Function):
    """tanh with a wrong second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.slope = 1 - y * y
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ctx.slope * grad


@register("carry", "wrong_second_derivative")
class WrongSecondDerivative(Carry):
    """Its second derivative misses a term."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return _Detached.apply(s)


@register("readout", "falsely_invariant", scale_invariant=True)
class FalselyInvariant(Readout):
    """States scale invariance, but divides only by the root of the norm."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h / h.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).sqrt().sqrt()


@register("readout", "unstated_invariance")
class UnstatedInvariance(Readout):
    """Is invariant to the scale without stating it."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h / h.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).sqrt()


@register("injection", "breaks_under_autocast", lacks={"streams"})
class BreaksUnderAutocast(Injection):
    """Combines bf16 and fp32 in an operation that autocast does not cast."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        out = torch.zeros_like(c)
        flat = self.first(c).flatten(0, 1) + self.second(e).flatten(0, 1)
        return out.flatten(0, 1).index_add(0, torch.arange(len(flat), device=flat.device), flat).view_as(c)


@register("attention", "forgets_its_cache")
class ForgetsItsCache(Attention):
    """A running mean over earlier tokens that does not read the cache."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        real = (step.positions < 2**30).to(x.dtype)[..., None]
        return self.out((x * real).cumsum(dim=1) / real.cumsum(dim=1).clamp(min=1))


@register("carry", "not_on_meta")
class NotOnMeta(Carry):
    """Computes values in the constructor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = torch.linspace(0.5, 1.0, width).sum().item()

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * self.scale


@register("carry", "loses_state")
class LosesState(Carry):
    """Keeps a running mean in a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(()), persistent=False)
        self.seen = Tally()

    def reset_parameters(self) -> None:
        self.mean.fill_(1.0)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        if self.training:
            self.seen.add(s.flatten(2).mean(dim=-1), step.counted)
        return s * 0.5 + self.mean.to(s.dtype)

    def update_buffers(self) -> None:
        self.mean.lerp_(self.seen.mean()[0].to(self.mean.dtype), 0.1)


@register("readout", "depends_on_the_total")
class DependsOnTheTotal(Readout):
    """Divides by the number of loops without stating uses_total."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h * k / at


@register("readout", "unstated_last_loop")
class UnstatedLastLoop(Readout):
    """Halves the last loop without stating uses_at."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h / 2 if k == at else h


@register("carry", "depends_on_the_length")
class DependsOnTheLength(Carry):
    """Scales by the time of the loop without stating uses_total."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return s * (1 + step.t)


@register("injection", "unset_parameter")
class UnsetParameter(Injection):
    """Has a parameter that nothing sets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, c: Tensor, e: Tensor, step: Step) -> Tensor:
        return c + self.scale * e


@register("placement", "narrows_the_stream")
class NarrowsTheStream(Placement):
    """Adds in the precision of the sublayer."""

    def __init__(self, norm: Callable[[], Norm]) -> None:
        super().__init__()
        self.norm = norm()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        y = f(self.norm(x))
        return x.to(y.dtype) + y


@register("attention", "sees_padding")
class SeesPadding(Attention):
    """A running mean that counts padding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return self.out(x.cumsum(dim=1) / count)


@register("gate", "unstated_gate")
class UnstatedGate(Gate):
    """A gate whose registration does not state that it provides one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return self.linear(s).squeeze(-1).float()


@register("init", "ignores_its_generator")
class IgnoresItsGenerator(Init):
    """Draws from torch's global random state."""

    def draw(
        self, name: str, module: nn.Module, part: str, shape: torch.Size, scale: InitContext, generator: torch.Generator
    ) -> Tensor:
        return torch.randn(shape) * 0.1


@register("regularizer", "counts_padding")
class CountsPadding(Regularizer):
    """A mean over all positions, padding included."""

    weight = 0.1

    def forward(self, t: Trajectory) -> Tensor:
        return t.state(1).float().square().mean()


@register("regularizer", "weighs_itself")
class WeighsItself(Regularizer):
    """Multiplies by its own weight."""

    weight = 0.1

    def forward(self, t: Trajectory) -> Tensor:
        return self.weight * t.state(t.reached)[:, :1].float().square().mean()


@register("supervision", "reads_more")
class ReadsMore(Supervision):
    """States that it reads the last loop, but also reads the first."""

    def loops(self, total: int) -> Sequence[int]:
        return [total]

    def forward(self, t: Trajectory) -> Supervised:
        total = t.loops.total
        scored = t.batch.scored.sum().clamp(min=1)
        nll = t.nll(sorted({1, total}))
        return Supervised(nll.sum() / scored, {total: nll[-1].detach().sum() / scored})


@register("exit", "looks_ahead")
class LooksAhead(Exit):
    """Compares with the last loop."""

    threshold = 0.0

    def score(self, t: Trajectory, k: int) -> Tensor:
        return -(t.state(t.reached) - t.state(k)).float().norm(dim=-1)


@register("probe", "leaves_gradients")
class LeavesGradients(Probe):
    """Calls backward on the model."""

    def __init__(self) -> None:
        self.sizes: dict[int, float] = {}

    def run(self, model: LoopedModelProtocol, batches: Any, depths: Sequence[int]) -> None:
        with torch.enable_grad():
            for batch in batches:
                assert isinstance(batch, Batch)
                model.run(batch, _loops(2)).nll([2]).mean().backward()
        self.sizes = {depth: 1.0 for depth in depths}

    def result(self) -> ProbeResult:
        return ProbeResult({"size": self.sizes}, units={"size": "nothing, 1"})


def _loops(total: int) -> Any:
    from loopkit.loop import Loops

    return Loops.fixed(total)


@register("tokenizer", "unreported_loss")
class UnreportedLoss(Bytes):
    """Drops characters outside ASCII and reports no loss."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return super().encode([text.encode("ascii", "ignore").decode() for text in texts])

    def lost(self, text: str) -> Lost:
        return Lost()


@register("source", "shuffles")
class Shuffles(Source):
    """Yields its documents in alternating order."""

    _count = 0

    def fingerprint(self, split: str) -> str:
        return split

    def documents(self, split: str) -> Iterator[Document]:
        if split not in ("train", "validation"):
            raise ValueError(f"unknown split {split}")
        Shuffles._count += 1
        names = ["a", "b", "c"]
        for name in names if Shuffles._count % 2 else reversed(names):
            yield Document((Span(name * 9),), f"{split}:{name}")


@register("optimizer", "forgets_vectors")
class ForgetsVectors(OptimizerRule):
    """Omits one-dimensional parameters."""

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for group in groups for p in group.params if p.dim() > 1], lr=0.0)


@register("optimizer", "miscounts_its_state")
class MiscountsItsState(OptimizerRule):
    """Keeps one value per parameter, but reports the default of two."""

    def build(self, groups: list[ParameterGroup]) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for group in groups for p in group.params], lr=0.0, momentum=0.9)


@register("lr", "climbs_past")
class ClimbsPast(LearningRate):
    """Climbs to twice its peak."""

    peak = 1e-3

    def at(self, step: int, num_steps: int) -> float:
        return self.peak * 2 * (step + 1) / num_steps


@register("task", "one_key_for_all")
class OneKeyForAll(Task):
    """Yields two requests with the same key."""

    def requests(self) -> Iterator[Request]:
        yield Corpus("same")
        yield Corpus("same")

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        return {"nll": answer.nll}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        return {"nll": sum(mark["nll"] for mark in marks)}


@register("tracker", "ends_the_process")
class EndsTheProcess(Tracker):
    """Exits the process if its service is unavailable."""

    def open(self, run: RunInfo) -> None:
        raise SystemExit("no token")

    def log(self, step: int, metrics: Any) -> None: ...

    def close(self, status: str) -> None: ...


@register("readout", "follows_its_micro_batch", causal="evaluation")
class FollowsItsMicroBatch(Readout):
    """Updates a buffer in the forward pass, like batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(()))

    def reset_parameters(self) -> None:
        self.mean.fill_(1.0)

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        if self.training:
            self.mean.lerp_(h.detach().square().mean().to(self.mean.dtype), 0.1)
        return h / self.mean.to(h.dtype).clone()


class _Running(Readout):
    """Divides by a running mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(()))
        self.seen = Tally()

    def reset_parameters(self) -> None:
        self.mean.fill_(1.0)

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h / self.mean.to(h.dtype)

    def observe(self, h: Tensor, loop: Tensor) -> None:
        self.seen.add(h.square().mean(dim=-1), loop > 0)

    def update_buffers(self) -> None:
        self.mean.lerp_(self.seen.mean()[0].to(self.mean.dtype), 0.1)


@register("readout", "tallies_padding")
class TalliesPadding(_Running):
    """Counts padding."""

    def observe(self, h: Tensor, loop: Tensor) -> None:
        self.seen.add(h.square().mean(dim=-1), loop > -1)


@register("readout", "tallies_passes")
class TalliesPasses(_Running):
    """Averages means, so that short micro-batches have the same weight as long ones."""

    def observe(self, h: Tensor, loop: Tensor) -> None:
        real = loop > 0
        mean = (h.square().mean(dim=-1) * real).sum() / real.sum().clamp(min=1)
        self.seen.add(mean.view(1), torch.ones(1, dtype=torch.bool))


@register("readout", "draws_its_buffer")
class DrawsItsBuffer(_Running):
    """Rounds its buffer at random, from the generator of the rank."""

    def update_buffers(self) -> None:
        self.mean.lerp_(self.seen.mean()[0].to(self.mean.dtype), 0.1).mul_(1 + 0.01 * torch.rand(()))


@register("carry", "thaws_itself")
class ThawsItself(Carry):
    """Updates its parameter even if the recipe freezes it."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(()))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.factor)

    def update_buffers(self) -> None:
        self.factor.mul_(0.9)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return self.factor.to(s.dtype) * s


@register("regularizer", "misstates_its_mean")
class MisstatesItsMean(Regularizer):
    """A mean over tokens that leaves ``mean_over`` at sequences."""

    weight = 0.1

    def forward(self, t: Trajectory) -> Tensor:
        return over_tokens(t.state(1).float().square().mean(dim=-1), t)


@register("supervision", "divides_by_places")
class DividesByPlaces(Supervision):
    """Takes the mean over all positions of the batch."""

    def loops(self, total: int) -> Sequence[int]:
        return [total]

    def forward(self, t: Trajectory) -> Supervised:
        nll = t.nll([t.loops.total])[0]
        return Supervised(nll.mean(), {t.loops.total: nll.detach().sum() / t.batch.scored.sum().clamp(min=1)})


@register("regularizer", "wants_every_row")
class WantsEveryRow(Regularizer):
    """Combines the records of each loop with a mask of the whole batch."""

    mean_over = "tokens"
    weight = 0.1

    def forward(self, t: Trajectory) -> Tensor:
        rows = torch.stack([t.state(k)[t.computed[k - 1]] if t.computed[k - 1] is not None else t.state(k)
                            for k in range(1, t.reached + 1)])  # fmt: skip
        return over_tokens(rows.float().square().mean(dim=(0, -1)), t)


@register("regularizer", "runs_another_pass")
class RunsAnotherPass(Regularizer):
    """Runs the loop once more from the start, as many times as the deepest sequence of the micro-batch.

    Args:
        weight: Coefficient of the penalty, >= 0.
    """

    mean_over = "tokens"

    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, t: Trajectory) -> Tensor:
        total = t.loops.total
        longer = t.model.run(t.batch, Loops.fixed(total + 1))
        return over_tokens((longer.state(total + 1) - t.state(total)).square().mean(dim=-1), t)
