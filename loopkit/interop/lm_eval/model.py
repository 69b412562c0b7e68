"""``--model loopkit`` of lm-eval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lm_eval.api.model import LM
from lm_eval.models.utils import normalize_gen_kwargs
from tqdm import tqdm

from loopkit.components.chat import chatml
from loopkit.errors import UserError
from loopkit.evaluation.context import evaluation_mode
from loopkit.evaluation.continuation.encode import Continuation, build_continuation, encode_continuations
from loopkit.inference import Sampling, generate, max_positions
from loopkit.inference.complete import StopCriteria, encode_prompts
from loopkit.interop.lm_eval.subject import check_arguments, open_model
from loopkit.plural import plural

_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
_GENERATION = ("until", "max_gen_toks", "do_sample", *_SAMPLING)


class LoopedLM(LM):
    """A run of loopkit as a model of lm-eval.

    Args:
        pretrained: Folder of the run, or its name under ``runs/``.
        depth: Loops; with an exit, the maximum. ``None``: the deepest trained one.
        exit: Name of an early-exit rule for likelihoods.
        threshold: Replaces the threshold of the rule.
        step: Optimizer step of the checkpoint; ``None``: the newest complete one.
        dtype: Arithmetic, fp32 or bf16_autocast; ``None``: that of the recipe.
        max_length: Maximum number of inputs when likelihoods are computed; ``None``: the length of training.
        max_gen_toks: Maximum number of generated tokens of tasks without a limit.
        seed: Seed of sampling.
        batch_size: Sequences per forward pass; ``auto``: that of the recipe's evaluation.
        max_batch_size: Ignored; lm-eval passes it.
        device: Device; ``None``: CUDA if there is one, else the CPU.
        unknown: Misspelt arguments, which are errors.

    Raises:
        UserError: If an argument is unknown or invalid.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        *,
        depth: int | None = None,
        exit: str | None = None,
        threshold: float | None = None,
        step: int | None = None,
        dtype: str | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        seed: int = 0,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        check_arguments(list(unknown))
        self.subject = open_model(
            pretrained,
            depth=depth,
            exit=exit,
            threshold=threshold,
            step=step,
            dtype=dtype,
            max_length=max_length,
            batch=_batch(batch_size),
            device=device,
        )
        self.tokenizer = self.subject.run.tokenizer
        self.max_gen_toks, self.seed = max_gen_toks, seed
        self._device = next(self.subject.run.model.parameters()).device

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Score continuations; one without a prompt follows the token that starts or ends a text."""
        pairs = [request.args for request in requests]
        with_prompt = iter(encode_continuations(self.tokenizer, [p for p in pairs if p[0]], self.subject.window))
        without = iter(self._without_prompt([text for prompt, text in pairs if not prompt]))
        items = [next(with_prompt if prompt else without) for prompt, _ in pairs]
        results = self._score(items, disable_tqdm, "loglikelihood")
        for pair, result in zip(pairs, results, strict=True):
            self.cache_hook.add_partial("loglikelihood", pair, result)
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Score whole texts, as ``loopkit eval`` does: each token but the first once, in windows without overlap."""
        texts = [request.args[0] for request in requests]
        windows = [list(_windows(ids, self.subject.window)) for ids in encode_prompts(self.tokenizer, texts)]
        scores = iter(self._score([item for items in windows for item in items], disable_tqdm, "rolling"))
        results = [sum(next(scores)[0] for _ in items) for items in windows]
        for text, result in zip(texts, results, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), result)
        return results

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Complete prompts; requests with the same settings and of similar length share a batch."""
        if self.subject.exit is not None:
            raise UserError(
                "model loopkit: exit applies to likelihoods, and this task generates text; remove exit, or set depth"
            )
        prompts = encode_prompts(self.tokenizer, [request.args[0] for request in requests])
        groups: dict[str, list[int]] = {}
        for number in sorted(range(len(requests)), key=lambda i: -len(prompts[i])):
            groups.setdefault(repr(requests[number].args[1]), []).append(number)
        results: dict[int, str] = {}
        with tqdm(total=len(requests), disable=disable_tqdm, desc="generate_until") as bar:
            for numbers in groups.values():
                for first in range(0, len(numbers), self.subject.batch):
                    batch = numbers[first : first + self.subject.batch]
                    texts = self._complete([prompts[i] for i in batch], requests[batch[0]].args[1])
                    for number, text in zip(batch, texts, strict=True):
                        results[number] = text
                        self.cache_hook.add_partial("generate_until", requests[number].args, text)
                    bar.update(len(batch))
        return [results[number] for number in range(len(requests))]

    def get_model_info(self) -> dict[str, Any]:
        """Return the facts that lm-eval writes to its result file."""
        return self.subject.facts()

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer in the names of lm-eval's request caches."""
        return f"loopkit-{self.tokenizer.fingerprint()[:12]}"

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the name of the template."""
        return "chatml" if chat_template else ""

    def apply_chat_template(self, chat_history: Iterable[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Format a conversation as ChatML; an answer without ``add_generation_prompt`` is left open."""
        messages = [(message["role"], message["content"]) for message in chat_history]
        if add_generation_prompt:
            return chatml(messages, open_turn=True)
        return chatml(messages[:-1], open_turn=True) + messages[-1][1]

    def _score(self, items: Sequence[Continuation], disable_tqdm: bool, name: str) -> list[tuple[float, bool]]:
        num_batches = -(-len(items) // self.subject.batch)
        with tqdm(total=num_batches, disable=disable_tqdm, desc=f"{name} (batches)") as bar:
            return self.subject.score(items, lambda done: bar.update(done - bar.n))

    def _without_prompt(self, texts: Sequence[str]) -> Iterator[Continuation]:
        if texts and self.subject.prefix is None:
            raise UserError(
                f"{plural(len(texts), 'request')} of this task without a prompt: the first token cannot be scored, "
                "because the model's tokenizer has no token that starts or ends a text"
            )
        for text, ids in zip(texts, encode_prompts(self.tokenizer, texts), strict=True):
            yield build_continuation([self.subject.prefix or 0, *ids], len(ids), self.subject.window, repr(text))

    def _complete(self, prompts: Sequence[Sequence[int]], settings: dict[str, Any]) -> list[str]:
        """Complete a batch of prompts, each without its start if it leaves too few positions."""
        options: dict[str, Any] = dict(normalize_gen_kwargs(settings, self.max_gen_toks))
        if unknown := sorted(options.keys() - set(_GENERATION)):
            raise UserError(
                f"model loopkit: generation setting {unknown[0]!r} of the task is not supported; "
                f"supported: {', '.join(_GENERATION)}"
            )
        max_tokens, model = options["max_gen_toks"], self.subject.run.model
        limit = max_positions(model)
        if limit is not None and max_tokens >= limit:
            raise UserError(
                f"model loopkit: the task generates up to {max_tokens} tokens, and the model has {limit} positions; "
                "set a smaller max_gen_toks in --gen_kwargs, or train with a longer data.length"
            )
        kept = [prompt if limit is None else prompt[-(limit - max_tokens) :] for prompt in prompts]
        if not all(kept) and self.subject.prefix is None:
            raise UserError("a prompt of this task is empty, and the model's tokenizer has no token that starts a text")
        sampling = {name: options[name] for name in _SAMPLING if options.get(name) is not None}
        criteria = StopCriteria(self.tokenizer, [stop for stop in options["until"] if stop])
        with evaluation_mode(model, self.subject.dtype):
            completions = generate(
                model,
                [list(prompt) or [self.subject.prefix or 0] for prompt in kept],
                depth=self.subject.depth,
                max_tokens=max_tokens,
                eos=criteria.eos,
                watch=lambda number, tokens: criteria(tokens),
                sampling=Sampling(seed=self.seed, **sampling),
            )
        return [criteria.truncate(completion).text for completion in completions]


def _windows(ids: Sequence[int], window: int | None) -> Iterator[Continuation]:
    """Yield windows that together score every token but the first once."""
    length = len(ids) if window is None else window
    for start in range(0, len(ids) - 1, length):
        part = ids[start : start + length + 1]
        yield build_continuation(part, len(part) - 1, None, "the text")


def _batch(size: int | str) -> int | None:
    """Return a batch size; ``None`` for ``auto``."""
    text = str(size)
    if text.startswith("auto"):
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"model loopkit: batch_size must be a positive number or auto, not {size!r}")
    return int(text)
