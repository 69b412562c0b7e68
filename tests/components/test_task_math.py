"""Marking: reference solutions are right, and with another number or another item's answer they are wrong."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="answers are compared with math-verify: install loopkit[test]")

from loopkit.components.chat import REASONING_SYSTEM
from loopkit.components.task import Completion, Generate
from loopkit.components.task.judge import Grade, Judge, NoMathVerify
from loopkit.components.task.math import Math


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge(seconds=2)
    yield judge
    judge.stop()


def increment(answer: str, other: str) -> str:
    """The answer with its first number raised by one; another item's answer where it has none."""
    number = re.search(r"\d+", answer)
    if number is None:
        return other
    return answer[: number.start()] + str(int(number[0]) + 1) + answer[number.end() :]


def gsm8k(data: Path) -> tuple[Path, list[str], list[str]]:
    """The file, its solutions, and the solutions with a wrong answer."""
    path = data / "gsm8k" / "test.jsonl"
    reference = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
    parts = [solution.rpartition("####") for solution in reference]
    return path, reference, [f"{text}#### {increment(answer.strip(), '')}" for text, _, answer in parts]


def math500(data: Path) -> tuple[Path, list[str], list[str]]:
    path = data / "math500" / "math500_test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = [
        row["solution"].rpartition(r"\boxed")[0] + rf"\boxed{{{increment(row['answer'], rows[i - 1]['answer'])}}}$."
        for i, row in enumerate(rows)
    ]
    return path, [row["solution"] for row in rows], wrong


def svamp(data: Path) -> tuple[Path, list[str], list[str]]:
    path = data / "svamp" / "SVAMP.json"
    answers = [row["Answer"] for row in json.loads(path.read_text())]
    return path, [str(answer) for answer in answers], [str(answer + 1) for answer in answers]


def answers_only(data: Path) -> tuple[Path, list[str], list[str]]:
    """Only the answers of MATH500."""
    path = data / "math500" / "math500_test.jsonl"
    answers = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
    return path, answers, [increment(answer, answers[i - 1]) for i, answer in enumerate(answers)]


FORMS = {"gsm8k": gsm8k, "math500": math500, "svamp": svamp, "math500 bare": answers_only}


def misjudged(form: str, data: Path, judge: Judge, every: int) -> list[tuple[str, str]]:
    path, reference, wrong = FORMS[form](data)
    task = Math(dataset=form.partition(" ")[0], path=path)  # type: ignore[arg-type]
    task._judge = judge
    requests = list(task.requests())
    assert len(requests) == len(reference) == len(wrong)
    grades = []
    for i in range(0, len(requests), every):
        marks = [task.mark(requests[i], Completion(text, 9, True)) for text in (reference[i], wrong[i])]
        if [mark["correct"] for mark in marks] != [1, 0] or any(mark["unparsed"] for mark in marks):
            grades.append((reference[i][-60:], wrong[i][-60:]))
    return grades


@pytest.mark.parametrize("form", FORMS)
def test_sampled_reference_solutions_are_graded_correctly(form: str, shared: Path, judge: Judge) -> None:
    assert misjudged(form, shared / "data", judge, 20) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_all_reference_solutions_are_graded_correctly(form: str, shared: Path, judge: Judge) -> None:
    assert misjudged(form, shared / "data", judge, 1) == []


@pytest.mark.parametrize(
    ("reference", "answer", "correct"),
    [
        ("2125", "$2,125.00", True),
        ("2125", "2{,}125 dollars", True),
        ("1000", "1 000", True),
        ("50", r"50\%", True),
        ("50", "0.51", False),
        ("7", "7(apples)", True),
        ("3, 4", "4 girls and 3 boys", True),
        ("3, 4", "3", False),
        ("0.5", "1/2", True),
        ("27", "27.0", True),
        ("x=5", "5", True),
        ("5", r"5\text{ cm}", True),
        ("4", r"\sqrt{16}", True),
        ("-3", "−3", True),
        (r"\frac{1}{3}", "0.3", False),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\text{Evelyn}", "Eve", False),
        (r"\text{(C)}", "C", True),
        (r"\text{(C)}", r"\text{C}", True),
        (r"\text{(C)}", "D", False),
        ("ab", "ba", True),
    ],
)
def test_answers_are_compared_by_value(reference: str, answer: str, correct: bool, judge: Judge) -> None:
    assert judge.compare(reference, answer) == Grade(parsed=True, correct=correct)


def test_unparsable_answer_is_not_correct(judge: Judge) -> None:
    assert judge.compare("3", r"\frac{") == Grade(parsed=False, correct=False)
    with pytest.raises(ValueError, match="cannot read"):
        judge.compare("", "3")


def test_judge_works_outside_the_main_thread(judge: Judge) -> None:
    grades: list[Grade] = []
    threads = [threading.Thread(target=lambda n=n: grades.append(judge.compare("3", str(n)))) for n in (3, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(verdict.correct for verdict in grades) == [False, True, True]


HANGS = """
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    answer = json.loads(line)["answer"]
    if answer == "hang":
        time.sleep(60)  # then it replies that the answers are equal
    if answer == "die":
        sys.exit(1)
    print(json.dumps({"parsed": True, "correct": True}), flush=True)
"""


def test_judge_recovers_from_hangs_and_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.setattr("loopkit.components.task.judge._VERIFIER", tmp_path / "hangs.py")
    judge = Judge(seconds=1)
    assert judge.compare("1", "2").correct
    for answer in ("hang", "die"):
        assert judge.compare("1", answer) == Grade(parsed=False, correct=False)
        assert judge.compare("1", "2").correct
    judge.stop()


def test_missing_package_fails_before_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(NoMathVerify, match=r"\(No module named math_verify\); install loopkit\[eval\]"):
        next(task(tmp_path).requests())


def task(folder: Path, **options: Any) -> Math:
    path = folder / "problems.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is.\n#### {n + 1}"} for n in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return Math(path=path, **options)


def requests_of(folder: Path, judge: Judge, **options: Any) -> Sequence[Generate]:
    math_task = task(folder, **options)
    math_task._judge = judge
    return list(math_task.requests())  # type: ignore[arg-type]


def test_requests_contain_the_prompt_template(tmp_path: Path, judge: Judge) -> None:
    requests = requests_of(tmp_path, judge, limit=2)
    assert [request.key for request in requests] == ["1", "2"]
    assert requests[0] == Generate(
        "1",
        f"<|im_start|>system\n{REASONING_SYSTEM}<|im_end|>\n<|im_start|>user\nWhat is 0 + 1?<|im_end|>\n"
        "<|im_start|>assistant\n",
        2048,
        ("<|im_end|>",),
    )
    plain = requests_of(tmp_path, judge, template="plain", max_tokens=5, instruction="Be short.")
    assert plain[3] == Generate("4", "Question: What is 3 + 1?\n\nBe short.\nAnswer:", 5, ("\nQuestion:",))
    assert requests_of(tmp_path, judge, system="", stop=["a", "b"])[0] == Generate(
        "1", "<|im_start|>user\nWhat is 0 + 1?<|im_end|>\n<|im_start|>assistant\n", 2048, ("a", "b")
    )


def test_figures_are_shares_of_all_problems(tmp_path: Path, judge: Judge) -> None:
    math_task = task(tmp_path)
    math_task._judge = judge
    texts = [(r"\boxed{1}", True), ("#### 2", False), ("no idea", True), ("The answer is 5.", False)]
    marks = [
        math_task.mark(request, Completion(text, 3, finished))
        for request, (text, finished) in zip(math_task.requests(), texts, strict=True)
    ]
    assert math_task.total(marks) == {"accuracy": 0.5, "unfinished": 0.5, "unparsed": 0.25}
    assert math_task.total([]) == {}
    assert math_task.facts()["problems"] == 4
    assert "user\n{question}<|im_end|>" in math_task.facts()["prompt_template"]


def test_conflicting_options_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split and revision apply to the hub"):
        Math(path=tmp_path, split="test")
    with pytest.raises(ValueError, match="marker is empty"):
        Math(marker="")
