"""``loopkit generate``: generate text from a prompt."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_run
from loopkit.cli.options import (
    choose_device,
    device_option,
    dtype_option,
    json_option,
    plugin_files_option,
    runs_option,
    show_checkpoint_warnings,
    step_option,
    weights_option,
)
from loopkit.errors import UserError
from loopkit.plural import plural

if TYPE_CHECKING:
    from loopkit.evaluation.trained_run import TrainedRun
    from loopkit.inference import Sampling
    from loopkit.inference.complete import Completed
    from loopkit.runs.checkpoint import Weights


@click.command("generate")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--prompt", "prompts", multiple=True, help="Text to continue; may repeat.  [default: standard input]")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help='Prompts, one JSON string or {"prompt": "text"} on a line; needs --out.',
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSONL file of the completions of --file; an interrupted one is continued.",
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=16, show_default=True, help="Prompts of --file in one batch."
)
@click.option("--depth", type=click.IntRange(min=1), help="Number of loops.  [default: the most trained]")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=256, show_default=True, help="Maximum number of new tokens."
)
@click.option(
    "--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="Sampling temperature; 0 is greedy."
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Nucleus sampling: smallest set of tokens with this total probability.",
)
@click.option("--top-k", type=click.IntRange(min=1), help="Sample from this many most likely tokens.")
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Sample from tokens at least this share as likely as the most likely one.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of sampling and of a random initial state.")
@click.option("--stop", multiple=True, help="String that ends a completion; may repeat.")
@click.option("--chat", is_flag=True, help="Format the prompt as a user's turn of a conversation.")
@click.option("--system", help="System prompt of --chat; an empty one omits it.")
@step_option
@weights_option
@dtype_option
@device_option
@plugin_files_option
@runs_option
@json_option
def command(
    run: str | None,
    prompts: tuple[str, ...],
    file: Path | None,
    out: Path | None,
    batch: int,
    depth: int | None,
    max_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int | None,
    min_p: float,
    seed: int,
    stop: tuple[str, ...],
    chat: bool,
    system: str | None,
    step: int | None,
    weights: Weights,
    dtype: str | None,
    device: str,
    plugins: tuple[Path, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Generate text with RUN, a folder or a name under runs/; the default is the newest.

    Several prompts form one batch, which does not change their completions. A single completion is shown while it is
    generated.
    """
    if system is not None and not chat:
        raise UserError("--system applies only to a conversation; add --chat")
    if (file is None) != (out is None) or (file is not None and prompts):
        raise UserError("--file and --out belong together, and replace --prompt")
    if file is not None:
        from loopkit.inference.prompt_file import read_prompts

        inputs = tuple(read_prompts(file))
    else:
        inputs = prompts or (sys.stdin.read().removesuffix("\n"),)
    if not all(inputs):
        raise UserError("the prompt is empty; give --prompt TEXT or text on standard input")

    import json

    from loopkit.components.chat import CLOSE
    from loopkit.evaluation.trained_run import open_run
    from loopkit.inference import Sampling, uncacheable_components

    opened = open_run(run, step=step, weights=weights, plugins=plugins, device=choose_device(device), root=runs)
    show_checkpoint_warnings(opened.warnings, opened.checkpoint.path.name)
    if parts := uncacheable_components(opened.model):
        note = f"{' and '.join(parts)}: no key-value cache, so each new token recomputes the whole sequence"
        click.echo(f"note: {note}", err=True)
    depth = opened.trained.max if depth is None else depth
    texts = [_conversation(text, system) for text in inputs] if chat else list(inputs)
    stops = (*stop, CLOSE) if chat else stop
    precision = dtype or opened.recipe.train.precision
    stream = not as_json and len(texts) == 1 and sys.stdout.isatty()
    sampling = Sampling(temperature, top_p, seed, top_k, min_p)
    if out is not None:
        _complete_file(opened, texts, out, batch, depth, max_tokens, stops, sampling, precision)
        return
    completions = _complete(opened, texts, depth, max_tokens, stops, sampling, precision, stream)
    if as_json:
        records = [
            {"prompt": prompt, "text": item.text, "num_tokens": item.num_tokens, "finished": item.finished}
            for prompt, item in zip(texts, completions, strict=True)
        ]
        facts = opened.names | {"depth": depth}
        click.echo(json.dumps(facts | {"dtype": precision, "completions": records}, indent=2, ensure_ascii=False))
    elif not stream:
        click.echo("\n\n".join(item.text for item in completions))


def _conversation(text: str, system: str | None) -> str:
    from loopkit.components.chat import REASONING_SYSTEM, chatml

    instruction = REASONING_SYSTEM if system is None else system
    return chatml([*([("system", instruction)] if instruction else []), ("user", text.strip())], open_turn=True)


def _complete_file(
    opened: TrainedRun,
    prompts: Sequence[str],
    out: Path,
    batch: int,
    depth: int,
    max_tokens: int,
    stop: Sequence[str],
    sampling: Sampling,
    dtype: str,
) -> None:
    """Complete prompts in batches, and append each completion to a file as soon as it ends."""
    from dataclasses import asdict
    from time import perf_counter

    from loopkit.evaluation.context import evaluation_mode
    from loopkit.inference import complete
    from loopkit.inference.prompt_file import CompletionLog

    settings = opened.names | {"depth": depth, "dtype": dtype}
    settings |= {"max_tokens": max_tokens, "stop": list(stop), **asdict(sampling)}
    tokens, start = 0, perf_counter()
    with CompletionLog(out, prompts, settings) as log, evaluation_mode(opened.model, dtype):  # type: ignore[arg-type]
        missing = log.missing
        if done := len(prompts) - len(missing):
            click.echo(f"{plural(done, 'completion')} in {out} already", err=True)
        for first in range(0, len(missing), batch):
            indices = missing[first : first + batch]
            completions = complete(
                opened.model,
                opened.tokenizer,
                [prompts[index] for index in indices],
                depth=depth,
                max_tokens=max_tokens,
                stop=stop,
                sampling=sampling,
                done=lambda number, completed, indices=indices: log.add(indices[number], completed),  # type: ignore[misc]
            )
            tokens += sum(completed.num_tokens for completed in completions)
    speed = tokens / (perf_counter() - start)
    click.echo(f"{plural(len(missing), 'completion')}, {plural(tokens, 'token')} at {speed:,.0f} tokens/s", err=True)
    click.echo(f"written: {out}")


def _complete(
    opened: TrainedRun,
    prompts: Sequence[str],
    depth: int,
    max_tokens: int,
    stop: Sequence[str],
    sampling: Sampling,
    dtype: str,
    stream: bool,
) -> list[Completed]:

    from loopkit.evaluation.context import evaluation_mode
    from loopkit.inference import complete
    from loopkit.inference.stream import Stream

    tokenizer = opened.tokenizer
    streamed = Stream(tokenizer, stop, lambda text: click.echo(text, nl=False)) if stream else None
    with evaluation_mode(opened.model, dtype):  # type: ignore[arg-type]
        completions = complete(
            opened.model,
            tokenizer,
            prompts,
            depth=depth,
            max_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
            watch=lambda number, tokens: None if streamed is None else streamed.update(tokens),
        )
    if streamed is not None:
        streamed.end(completions[0].text)
    return completions
