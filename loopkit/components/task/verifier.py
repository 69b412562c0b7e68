"""The process that compares answers: ``python -P verifier.py``; reads and writes one JSON object per line.

It imports nothing from loopkit. math-verify's alarms work only in a main thread; ``Judge`` kills the process if they
do not fire. No torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from typing import Any

_WORDS = re.compile(r"\(?[A-Za-z][A-Za-z -]*\)?")

MEMORY = 4 * 2**30
"""Memory limit in bytes: a power tower fails instead of making the machine swap."""


def compare(gold: str, answer: str, seconds: int) -> dict[str, Any]:
    """Check whether an answer can be parsed and equals the reference, or return an error.

    Args:
        gold: Reference answer, as a formula.
        answer: The model's answer, as a formula.
        seconds: Time limit of each parse and comparison.
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    # the parser reads a word as a product of letters, unless it is marked as text like the reference
    as_text = [rf"\text{{{answer}}}"] if _WORDS.fullmatch(answer) and r"\text" in gold else []
    reference, *forms = (
        parse(rf"$\boxed{{{text}}}$", extraction_config=config, parsing_timeout=seconds)
        for text in (gold, answer, *as_text)
    )
    if not reference:
        return {"error": f"math-verify cannot read the reference answer {gold!r}"}
    correct = any(form and verify(reference, form, timeout_seconds=seconds) for form in forms)
    # parse returns text that it cannot parse as a string
    return {"parsed": correct or any(not isinstance(part, str) for part in forms[0]), "correct": correct}


def main() -> None:
    """Answer requests until the input ends."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = sys.stdout
    sys.stdout = sys.stderr  # keep what libraries print out of the answers

    def reply(record: dict[str, Any]) -> None:
        out.write(json.dumps(record) + "\n")
        out.flush()

    try:
        compare("1", "1", 0)
    except ImportError as error:
        reply({"error": str(error)})
        return
    reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply(compare(request["gold"], request["answer"], request["seconds"]))
        except MemoryError:
            reply({"parsed": False, "correct": False})
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
