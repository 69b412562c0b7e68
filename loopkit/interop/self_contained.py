"""A folder with its own modelling code, which transformers loads where loopkit is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopkit.components.tokenizer import Tokenizer
from loopkit.interop import templates
from loopkit.interop.architectures import OWN, forms
from loopkit.interop.architectures.loopkit import unsupported_components
from loopkit.interop.export_plan import ExportPlan, special_tokens
from loopkit.interop.published import CONFIG
from loopkit.interop.roundtrip import LoopRange, NotRepresentable
from loopkit.interop.tokenizer import GENERATION
from loopkit.plural import plural
from loopkit.recipe import Recipe
from loopkit.report import read_record
from loopkit.report.pages.model_card import model_card
from loopkit.runs import RunFolder

CODE = Path(templates.__file__).parent
PACKAGE = f"from {templates.__name__}."


def plan_self_contained(
    folder: RunFolder, step: int, recipe: Recipe, model: Mapping[str, Any], tokenizer: Tokenizer
) -> ExportPlan:
    """Plan a folder with configuration, modelling code, tokenizer and model card.

    Args:
        folder: The run.
        step: Optimizer steps after which its checkpoint was written.
        recipe: Its recipe.
        model: The resolved ``model`` section as plain values, ``vocabulary`` filled in.
        tokenizer: The run's.

    Raises:
        NotRepresentable: If a component has no modelling code.
    """
    if problems := unsupported_components(model):
        raise NotRepresentable(
            "this model cannot be exported with its modelling code; replace these components, or use loopkit to run "
            "it:\n  " + "\n  ".join(problems)
        )
    form, loops, length = forms()[OWN], LoopRange.of(recipe), recipe.data.length
    config = form.write(model, loops=loops.mean, max_loops=loops.max, length=length)
    config |= {"dtype": "float32"} | special_tokens(tokenizer)
    config["schedule"] = recipe.values["train"]["schedule"]
    files, notes = tokenizer.published(), list(loops.notes)
    if not files:
        notes.append(f"tokenizer '{recipe.data.tokenizer.name}' has no Hugging Face form, so the folder has none")
    generation = {key: value for key, value in special_tokens(tokenizer).items() if value is not None}
    return ExportPlan(
        form,
        dict(sorted(config.items())),
        form.weight_map(model, length=length, max_loops=loops.max),
        objects={name: value for name, value in files.items() if name != CONFIG} | {GENERATION: generation},
        texts=modelling_code() | {"README.md": _card(folder, step, recipe, loops)},
        notes=tuple(notes),
    )


def _card(folder: RunFolder, step: int, recipe: Recipe, loops: LoopRange) -> str:
    """The model card, with the metadata that a hub reads."""
    usage = (
        "`AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)` loads the model in transformers 4.56 "
        f"or newer; loopkit is not needed. By default it runs {plural(loops.mean, 'loop')}; `model.generate(..., "
        "num_loops=8)` and `from_pretrained(..., num_loops=8)` run another number. With `output_hidden_states=True`, "
        "`hidden_states` are the first state and the state after every loop. `loopkit import FOLDER` turns the folder "
        "into a run. The model is for research: its output was not made safe or factual."
    )
    tags = "library_name: transformers\npipeline_tag: text-generation\ntags: [loopkit, looped-transformer]"
    record = read_record(folder)
    record = replace(
        record,
        lines=[line for line in record.lines if line["step"] <= step],
        evaluations=[result for result in record.evaluations if result.get("step") in (None, step)],
    )
    return f"---\n{tags}\n---\n\n" + model_card(record, dict(recipe.values), usage)


def modelling_code() -> dict[str, str]:
    """Return the modelling code, by file name; its modules import each other relatively."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(CODE.glob("*.py"))}
    return {name: text.replace(PACKAGE, "from .") for name, text in sources.items() if name != "__init__.py"}
