"""Docstrings as a terminal shows them."""

from __future__ import annotations

from loopkit.report.reference.docstring import plain

DOC = """Keep a power of the scale.

s = rms(h),   z = s^alpha * h / s
t = s

In training ``ema`` takes its scale from all tokens
of the batch.

Args:
    alpha: The exponent.
"""


def test_paragraphs_are_left_to_the_terminal_and_equations_are_kept() -> None:
    assert plain(DOC) == (
        "Keep a power of the scale.\n\n"
        "s = rms(h),   z = s^alpha * h / s\nt = s\n\n"
        "In training ema takes its scale from all tokens of the batch."
    )
