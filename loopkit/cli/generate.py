"""``loopkit generate``: generate text from a prompt."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

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
@click.option("--exit", "exit_name", metavar="NAME", help="Stop looping early by this rule, as in loopkit list exit.")
@click.option(
    "--exit-level",
    type=click.Choice(["token", "sequence"]),
    default="token",
    show_default=True,
    help="Decide for each new token, or once for a prompt and all its new tokens.",
)
@click.option("--draft-depth", type=click.IntRange(min=1), help="Draft tokens with this many loops, and verify them.")
@click.option(
    "--draft-tokens",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Tokens of the first draft; the number adapts.",
)
@click.option(
    "--set",
    "-s",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of --exit, such as exit.threshold=3; may repeat.",
)
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
    exit_name: str | None,
    exit_level: Literal["token", "sequence"],
    draft_depth: int | None,
    draft_tokens: int,
    overrides: tuple[str, ...],
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
    generated. With --exit, --depth is the maximum number of loops; a token has no keys and values in loops that it
    skipped. With --draft-depth, greedy tokens are those of full depth, and sampled ones have the same distribution.
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
    exit_value = _exit_value(exit_name, overrides)
    if not all(inputs):
        raise UserError("the prompt is empty; give --prompt TEXT or text on standard input")

    import json

    from loopkit.components.chat import CLOSE
    from loopkit.evaluation.evaluate_run import build_exit
    from loopkit.evaluation.trained_run import open_run
    from loopkit.inference import Draft, ExitRule, Sampling, uncacheable_components

    opened = open_run(run, step=step, weights=weights, plugins=plugins, device=choose_device(device), root=runs)
    show_checkpoint_warnings(opened.warnings, opened.checkpoint.path.name)
    if parts := uncacheable_components(opened.model):
        note = f"{' and '.join(parts)}: no key-value cache, so each new token recomputes the whole sequence"
        click.echo(f"note: {note}", err=True)
    depth = opened.trained.max if depth is None else depth
    exit = None if exit_value is None else ExitRule(build_exit(opened, exit_value), exit_level)
    texts = [_conversation(text, system) for text in inputs] if chat else list(inputs)
    precision = dtype or opened.recipe.train.precision
    options: dict[str, Any] = {
        "depth": depth,
        "max_tokens": max_tokens,
        "stop": (*stop, CLOSE) if chat else stop,
        "sampling": Sampling(temperature, top_p, seed, top_k, min_p),
        "exit": exit,
        "draft": None if draft_depth is None else Draft(draft_depth, draft_tokens),
    }
    if out is not None:
        rule = {"exit": exit_value, "exit_level": None if exit is None else exit_level, "draft_depth": draft_depth}
        _complete_file(opened, texts, out, batch, precision, rule, options)
        return
    stream = not as_json and len(texts) == 1 and sys.stdout.isatty()
    start = perf_counter()
    completions = _complete(opened, texts, precision, stream, options)
    if as_json:
        records = [
            {"prompt": prompt, "text": item.text, "num_tokens": item.num_tokens, "finished": item.finished}
            | ({} if exit is None else {"mean_depth": item.mean_depth})
            | ({} if draft_depth is None else {"num_drafted": item.num_drafted})
            for prompt, item in zip(texts, completions, strict=True)
        ]
        facts = opened.names | {"depth": depth}
        click.echo(json.dumps(facts | {"dtype": precision, "completions": records}, indent=2, ensure_ascii=False))
    elif not stream:
        click.echo("\n\n".join(item.text for item in completions))
    if stream or exit is not None or draft_depth is not None:
        click.echo(_summary(completions, perf_counter() - start), err=True)


def _exit_value(name: str | None, overrides: Sequence[str]) -> dict[str, Any] | None:
    """Return an exit as a recipe would write it."""
    from loopkit.recipe.layers import overrides as read_overrides

    for text in overrides:
        if not text.strip().startswith("exit."):
            raise UserError(f"--set {text}: only exit.* can be set, such as exit.threshold=3")
    if name is None:
        if overrides:
            raise UserError(f"--set {overrides[0]}: there is no exit to change; add --exit NAME")
        return None
    options: dict[str, Any] = {}
    for node in read_overrides(overrides):
        options |= node.plain()["exit"]
    return {"type": name, **options}


def _summary(completions: Sequence[Completed], seconds: float) -> str:
    """Return the number of tokens, their speed, and their mean depth."""
    tokens = sum(item.num_tokens for item in completions)
    depth = sum(item.num_tokens * item.mean_depth for item in completions) / max(tokens, 1)
    drafted = sum(item.num_drafted for item in completions)
    note = f", {drafted / tokens:.0%} of them drafted and accepted" if drafted else ""
    return f"{plural(tokens, 'token')} at {tokens / seconds:,.0f} tokens/s, mean depth {depth:.3g}{note}"


def _conversation(text: str, system: str | None) -> str:
    from loopkit.components.chat import REASONING_SYSTEM, chatml

    instruction = REASONING_SYSTEM if system is None else system
    return chatml([*([("system", instruction)] if instruction else []), ("user", text.strip())], open_turn=True)


def _complete_file(
    opened: TrainedRun,
    prompts: Sequence[str],
    out: Path,
    batch: int,
    dtype: str,
    rule: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Complete prompts in batches, and append each completion to a file as soon as it ends."""
    from loopkit.evaluation.context import evaluation_mode
    from loopkit.inference import complete
    from loopkit.inference.prompt_file import CompletionLog

    settings: dict[str, Any] = opened.names | {"dtype": dtype}
    settings |= {"depth": options["depth"], "max_tokens": options["max_tokens"], "stop": list(options["stop"])}
    settings |= {**asdict(options["sampling"]), **rule}
    completions: list[Completed] = []
    start = perf_counter()
    with CompletionLog(out, prompts, settings) as log, evaluation_mode(opened.model, dtype):  # type: ignore[arg-type]
        missing = log.missing
        if done := len(prompts) - len(missing):
            click.echo(f"{plural(done, 'completion')} in {out} already", err=True)
        for first in range(0, len(missing), batch):
            indices = missing[first : first + batch]
            completions += complete(
                opened.model,
                opened.tokenizer,
                [prompts[index] for index in indices],
                done=lambda number, completed, indices=indices: log.add(indices[number], completed),  # type: ignore[misc]
                **options,
            )
    click.echo(f"{plural(len(missing), 'completion')}, {_summary(completions, perf_counter() - start)}", err=True)
    click.echo(f"written: {out}")


def _complete(
    opened: TrainedRun, prompts: Sequence[str], dtype: str, stream: bool, options: dict[str, Any]
) -> list[Completed]:
    """Complete prompts in one batch, and show a single completion while it is generated."""
    from loopkit.evaluation.context import evaluation_mode
    from loopkit.inference import complete
    from loopkit.inference.stream import Stream

    show = Stream(opened.tokenizer, options["stop"], lambda text: click.echo(text, nl=False)) if stream else None
    with evaluation_mode(opened.model, dtype):  # type: ignore[arg-type]
        completions = complete(
            opened.model,
            opened.tokenizer,
            prompts,
            watch=lambda number, tokens: None if show is None else show.update(tokens),
            **options,
        )
    if show is not None:
        show.end(completions[0].text)
    return completions
