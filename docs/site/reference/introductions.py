"""Handwritten introductions of generated pages."""

RECIPES = """A recipe is a YAML 1.2 file. Order of composition: parents, recipe, profiles, `--set`; maps merge, lists
replace. Changing a component's `type` drops the options inherited with it. Unknown keys, keys written twice, aliases
and tags are errors. Paths are relative to the file that contains them. In editors, the first line
`# yaml-language-server: $schema=../loopkit.schema.json` gives completion and explanations, once
[`loopkit schema`](commands/schema.md) `--out loopkit.schema.json` has written that file.
"""

STUDIES = """A study is a YAML file whose first key is `study: 1`. It lists recipes, seeds, and the claims of a paper as
data. [`loopkit reproduce`](commands/reproduce.md) runs what is missing, judges every claim, and writes
`NAME.results.json` next to the file.
"""

PYTHON = """# Functions and types

[From Python](../python.md) shows how to use them.

## Functions

::: loopkit.api

## One pass, readable at every loop

::: loopkit.loop.trajectory.Trajectory

::: loopkit.loop.looped_model.LoopedModelProtocol

## Inputs of a pass

::: loopkit.loop.batch.Batch

::: loopkit.loop.loops.Loops

::: loopkit.loop.step.Step

::: loopkit.loop.noise.Noise
"""

ROW = {
    "depth": "Loops.",
    "trained": "Whether training ran and supervised this number of loops.",
    "loss": "Mean negative log-likelihood, nats per token.",
    "token_ppl": "exp(nll / tokens); comparable only between models with the same tokenizer.",
    "word_ppl": "exp(nll / words).",
    "bits_per_byte": "nll / (ln 2 * bytes); comparable between lossless tokenizers.",
    "tokens_per_s": "Tokens per second at this depth, if the evaluation was timed.",
    "not_finite": "Names of metrics that are not finite.",
}
