"""The process in which answers are compared: ``python -P verifier.py``, one JSON object a line in, one out.

It imports nothing of loopkit. Its main thread is where math-verify's alarms work, and whoever started it can end it
when they do not. No torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from typing import Any

from loopkit.errors import UserError

_WORDS = re.compile(r"\(?[A-Za-z][A-Za-z -]*\)?")

MEMORY = 4 * 2**30
"""Bytes that it may take: a power tower is answered with an error, not with a machine that swaps."""


def compare(gold: str, answer: str, seconds: int) -> dict[str, bool]:
    """Whether an answer can be read, and whether it is worth the same as the right one.

    Args:
        gold: What is right, as a formula.
        answer: What was said, as a formula.
        seconds: How long each of reading and comparing may take.
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    # a word is a product of letters to the parser, unless it is said to be text as the right one is
    words = [rf"\text{{{answer}}}"] if _WORDS.fullmatch(answer) and r"\text" in gold else []
    right, *forms = (
        parse(rf"$\boxed{{{text}}}$", extraction_config=config, parsing_timeout=seconds)
        for text in (gold, answer, *words)
    )
    if not right:
        raise UserError(f"math-verify cannot read {gold!r}, which is said to be right")
    correct = any(form and verify(right, form, timeout_seconds=seconds) for form in forms)
    # what was not understood comes back as the text that it was
    return {"parsed": correct or any(not isinstance(part, str) for part in forms[0]), "correct": correct}


def main() -> None:
    """Answer requests until there are no more."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer

    def say(record: dict[str, Any]) -> None:
        out.write(json.dumps(record) + "\n")
        out.flush()

    try:
        compare("1", "1", 0)
    except ImportError as error:
        say({"error": str(error)})
        return
    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(compare(request["gold"], request["answer"], request["seconds"]))
        except MemoryError:
            say({"parsed": False, "correct": False})
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
