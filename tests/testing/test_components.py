"""The kit on every registered component: the checks that plugin authors run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopkit.registry import KINDS
from loopkit.registry.catalog import catalog
from loopkit.testing import Case, cases

DATA = Path(__file__).resolve().parent / "data"
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "attention/causal": [{"heads": 4, "kv_heads": 2, "qk_norm": "rmsnorm"}],
    "carry/chain": [{"of": ["norm", "damping"]}],
    "readout/alpha": [{"per_loop": True, "s_ref": "learned"}],
    "source/math_sft": [{"path": str(DATA / "math"), "problem": "question", "solution": "answer"}],
    "source/text": [{"path": str(DATA / "text")}],
    "source/wikitext": [{"path": str(DATA / "wikitext"), "variant": "2-raw"}],
    "task/choice": [{"path": str(DATA / "questions.jsonl")}],
    "task/math": [{"dataset": "gsm8k", "path": str(DATA / "gsm8k.jsonl")}],
    "tokenizer/huggingface": [{"path": str(DATA / "tokenizer.json")}],
}
"""Options that the kit cannot guess, or that it checks in addition to the defaults."""

NEEDS_OPTIONS = {
    "source/math_sft",
    "source/text",
    "source/wikitext",
    "task/choice",
    "task/math",
    "tokenizer/huggingface",
}
"""Components that do not work without these options."""


def collect_cases() -> list[Case]:
    selected: list[Case] = []
    for offer in catalog(plugins=False).offers:
        name = f"{offer.kind}/{offer.name}"
        for options in [*([] if name in NEEDS_OPTIONS else [{}]), *OPTIONS.get(name, [])]:
            selected += cases(name, options=options)
    return selected


CASES = collect_cases()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore::loopkit.components.source.DataWarning")
def test_conformance(case: Case) -> None:
    case()


def test_every_component_and_kind_is_checked() -> None:
    subjects = {f"{case.subject.schema.kind}/{case.subject.schema.name}" for case in CASES}
    offers = {f"{offer.kind}/{offer.name}" for offer in catalog(plugins=False).offers}
    assert subjects == offers
    from loopkit.testing.case import checks_of

    for kind in KINDS:
        assert len(checks_of(kind)) >= 5, f"kind {kind} has few checks"
    assert set(OPTIONS) <= offers, json.dumps(sorted(set(OPTIONS) - offers))
