"""Which part of a text is its answer."""

from __future__ import annotations

import pytest

from loopkit.components.task.answers import find_answer, formula


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So $x = 3$, and $\boxed{\frac{1}{2}}$ of 7.", r"\frac{1}{2}"),
        (r"\boxed{1} no, \boxed{x^{2}}", "x^{2}"),
        (r"\fbox{2}", "2"),
        (r"\boxed 7.", "7."),
        (r"a set: \boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{5} and then I was cut off at \boxed{6", "5"),
        ("<<3*4=12>>12 apples\n#### 1,234\nQuestion: 7", "1,234"),
        ("#### 5\n#### 6", "6"),
        ("The answer is 5 because 2 + 3 is.", "5"),
        ("**Answer:** 42", "42"),
        ("the final answer is: Evelyn.", "Evelyn"),
        (r"The answer is $\frac{14}{3}$, not 3.", r"\frac{14}{3}"),
        (r"Hence \(a = 2\), thus \[b = 3\] as said.", "b = 3"),
        ("She has $18 and spends $5, so $13 stay.", "13"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"\left( 3, \frac{\pi}{2} \right)"),
        ("p - q", "p - q"),
        (r"\text{Evelyn}", r"\text{Evelyn}"),
        ("-7", "-7"),
        ("It is 16-3 of them", "3"),
        ("It is -3 degrees", "-3"),
        ("Nearly 3/4 of the 12.5% of 1,450,000 people.", "1,450,000"),
        (r"I was cut off: there are 6 and \boxed{3", "6"),
        ("nothing at all", None),
        (r"\boxed{", None),
        ("", None),
        ("...", None),
    ],
)
def test_find_answer(text: str, answer: str | None) -> None:
    assert find_answer(text) == answer


def test_find_answer_with_another_marker() -> None:
    assert find_answer("first 3 -> 5\nthen 4", "->") == "5"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$2,125", "2,125"),
        (r"\$18.90", "18.90"),
        ("2{,}125 dollars", "2,125"),
        ("**42**.", "42"),
        ("1 450 000", "1450000"),
        (r"11,\!080", r"11,\!080"),
        (r"1\,000", "1000"),
        ("3 boys and 4 girls", "3, 4"),
        ("3, or 4", "3, 4"),
        ("50%", "50%"),
        (r"$\frac{1}{2}$", r"\frac{1}{2}"),
        ("x = 5", "x = 5"),
        (r"15\mbox{ cm}^2", r"15\mbox{ cm}^2"),
        ("2 pi", "2 pi"),
        ("Evelyn", "Evelyn"),
    ],
)
def test_formula_drops_prose(answer: str, expected: str) -> None:
    assert formula(answer) == expected
