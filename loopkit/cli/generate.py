"""``loopkit generate``: text from a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import run_words
from loopkit.cli.options import json_option, plugin_files_option
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.evaluation.trained_run import TrainedRun
    from loopkit.inference import Sampling
    from loopkit.inference.complete import Completed


@click.command("generate")
@click.argument("run", required=False, shell_complete=run_words)
@click.option("--prompt", "prompts", multiple=True, help="Text to go on from; may repeat. Standard input if not given.")
@click.option("--depth", type=click.IntRange(min=1), help="Number of loops; the most trained if not given.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 takes the likeliest.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Draw from the likeliest tokens that together reach this.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws, and of a random start.")
@click.option("--stop", multiple=True, help="A string that ends the text; may repeat.")
@click.option("--chat", is_flag=True, help="Put the prompt into a conversation, as a user's question.")
@click.option("--system", help="System prompt of --chat; an empty one leaves it out.")
@click.option("--step", type=click.IntRange(min=0), help="Checkpoint of this optimizer step; the newest if not given.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16_autocast"]), help="Arithmetic; the recipe's if not given.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@plugin_files_option
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@json_option
def command(
    run: str | None,
    prompts: tuple[str, ...],
    depth: int | None,
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
    stop: tuple[str, ...],
    chat: bool,
    system: str | None,
    step: int | None,
    dtype: str | None,
    device: str,
    plugins: tuple[Path, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Go on from a prompt with RUN, a folder or a name under runs/. Without RUN, the newest.

    Several prompts are one batch; each gives what it gives alone. The text of one prompt appears as it is written.
    """
    if system is not None and not chat:
        raise UserError("--system is the system prompt of a conversation; add --chat")
    texts = prompts or (sys.stdin.read().removesuffix("\n"),)
    if not all(texts):
        raise UserError("the prompt is empty; give --prompt TEXT, or text on standard input")

    import json

    import torch

    from loopkit.components.chat import CLOSE
    from loopkit.evaluation.trained_run import open_run
    from loopkit.inference import Sampling, uncacheable_components

    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    opened = open_run(run, step=step, plugins=plugins, device=place, root=runs)
    for warning in opened.warnings:
        click.echo(f"warning: {warning}; using {opened.checkpoint.path.name}", err=True)
    if parts := uncacheable_components(opened.model):
        click.echo(f"note: {' and '.join(parts)} cannot be cached, so every token costs the whole text", err=True)
    depth = opened.trained.max if depth is None else depth
    asked = [_conversation(text, system) for text in texts] if chat else list(texts)
    stops = (*stop, CLOSE) if chat else stop
    precision = dtype or opened.recipe.train.precision
    stream = not as_json and len(asked) == 1 and sys.stdout.isatty()
    found = _complete(opened, asked, depth, max_tokens, stops, Sampling(temperature, top_p, seed), precision, stream)
    if as_json:
        records = [
            {"prompt": prompt, "text": text.text, "num_tokens": text.num_tokens, "finished": text.finished}
            for prompt, text in zip(asked, found, strict=True)
        ]
        facts = {"run": opened.folder.name, "checkpoint": opened.checkpoint.path.name, "depth": depth}
        click.echo(json.dumps(facts | {"dtype": precision, "completions": records}, indent=2, ensure_ascii=False))
    elif not stream:
        click.echo("\n\n".join(text.text for text in found))


def _conversation(text: str, system: str | None) -> str:
    from loopkit.components.chat import REASONING_SYSTEM, chatml

    said = REASONING_SYSTEM if system is None else system
    return chatml([*([("system", said)] if said else []), ("user", text.strip())], open_turn=True)


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
    shown = Stream(tokenizer, stop, lambda text: click.echo(text, nl=False)) if stream else None
    with evaluation_mode(opened.model, dtype):  # type: ignore[arg-type]
        found = complete(
            opened.model,
            tokenizer,
            prompts,
            depth=depth,
            max_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
            watch=lambda number, tokens: None if shown is None else shown.update(tokens),
        )
    if shown is not None:
        shown.end(found[0].text)
    return found
