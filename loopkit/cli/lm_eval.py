"""``loopkit lm-eval``: run lm-eval with the model ``loopkit``."""

from __future__ import annotations

import click


@click.command("lm-eval", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run lm-eval on a run. ARGUMENTS are those of lm-eval; --model loopkit is the default.

    \b
    loopkit lm-eval --model_args pretrained=runs/NAME,depth=4 --tasks arc_easy

    Arguments of the model: pretrained (the run), depth, exit, threshold, step, dtype, max_length, max_gen_toks, seed.
    See lm-eval --help for all others.
    """
    import sys

    from loopkit.errors import UserError
    from loopkit.registry.packages import is_installed

    if not is_installed("lm_eval"):
        raise UserError("lm-eval is not installed: pip install 'loopkit[lm-eval]'")

    import lm_eval.models  # noqa: F401  (registers the other models, which lm-eval skips if one is registered)
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import model_registry

    from loopkit.interop.lm_eval.model import LoopedLM

    if "loopkit" not in model_registry:
        model_registry.register("loopkit")(LoopedLM)
    words = list(arguments)
    if words and words[0] not in ("run", "ls", "validate"):
        words.insert(0, "run")
    if words and words[0] == "run" and not any(word == "--model" or word.startswith("--model=") for word in words):
        words += ["--model", "loopkit"]
    before, sys.argv = sys.argv, ["lm-eval", *words]
    try:
        cli_evaluate()
    finally:
        sys.argv = before
