"""Extract the final answer from a completion and convert it to a formula. No torch."""

from __future__ import annotations

import re

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = re.compile(rf"(?<![\w.,)])-?(?:{NUMBER})(?:\s*/\s*(?:{NUMBER}))?(?:\s*%)?")
_SPACED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,; !]|[ ~\u00a0\u202f])\d{3})+(?!\d)")  # thousands separated by blanks
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_PHRASE = re.compile(r"\banswer(?:\s+is|\s*:|\s+is\s*:)\s*(?P<answer>[^\n]+)", re.IGNORECASE)
_MATHS = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)|(?<![\\\d])\$(?P<d>[^$\n]+?)(?<!\\)\$", re.DOTALL
)
_COMMAND = re.compile(r"\\(?:text|mbox|textbf|mathrm|operatorname)\s*\{[^{}]*\}|\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|\\.")
_WORD = re.compile(r"(?<![A-Za-z])(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|pi|sqrt|max|min|mod)\b)[A-Za-z]{2,}")


def find_answer(text: str, marker: str = "####") -> str | None:
    r"""Extract the final answer of a completion.

    The first of these rules that matches applies, at its last match: the content of ``\boxed{}``; the text after the
    marker on its line; the text after "the answer is" or "answer:"; a formula between ``$``, ``\(`` or ``\[``; the
    whole text, if it is a formula; a number.

    Args:
        text: A completion.
        marker: Text before the answer.

    Returns:
        The answer as written; ``None`` if there is none.
    """
    boxed = _boxed(text)
    if boxed is None and (unclosed := _BOX.search(text)):
        text = text[: unclosed.start()]
    for answer in (boxed, _after_marker(text, marker), _after_phrase(text), _last_formula(text)):
        if answer is not None and answer.strip():
            return answer.strip()
    stripped = text.strip()
    if "\n" not in stripped and re.search(r"[^\W_]", stripped) and not _has_words(stripped):
        return stripped
    numbers = _SIGNED.findall(text)
    return numbers[-1].strip() if numbers else None


def formula(answer: str) -> str:
    r"""Convert an answer to a formula: remove markup, currencies, spelled-out units and the full stop.

    ``$2,125`` and ``2{,}125 dollars`` become ``2,125``; ``3 boys and 4 girls`` becomes ``3, 4``. LaTeX is not changed.
    """
    text = re.sub(r"^[*_`\s]+|[*_`\s.]+$", "", answer)
    if match := _MATHS.fullmatch(text):
        text = _content(match)
    text = text.replace("{,}", ",").replace(r"\$", "")
    text = re.sub(r"[$€£¥]", "", text).strip()
    if "\\" not in text and "=" not in text:
        text = re.sub(r"\s*\b(?:and|or)\b\s*", ", ", re.sub(r",\s*(and|or)\b", r" \1", text))
        if _WORD.search(text) and (numbers := _SIGNED.findall(text)):
            return ", ".join(number.strip() for number in numbers)
    return _SPACED.sub(lambda match: re.sub(r"\D", "", match.group()), text)


def _boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed`` whose brace is closed, or of ``\boxed 3``."""
    for box in reversed(list(_BOX.finditer(text))):
        content = text[box.end() :]
        if not content.startswith("{"):
            if match := re.match(r"[\w.,]+", content):
                return match.group()
            continue
        depth = 0
        for brace in re.finditer(r"(?<!\\)[{}]", content):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                return content[1 : brace.start()]
    return None


def _after_marker(text: str, marker: str) -> str | None:
    _, separator, tail = text.rpartition(marker)
    return tail.strip().partition("\n")[0] if separator else None


def _after_phrase(text: str) -> str | None:
    """Return the formula, else the number, else the first sentence after the last "the answer is"."""
    phrases = list(_PHRASE.finditer(text))
    if not phrases:
        return None
    answer = phrases[-1]["answer"].strip()
    if (in_dollars := _last_formula(answer)) is not None:
        return in_dollars
    if _has_words(answer) and (number := _SIGNED.search(answer)):
        return number.group()
    return re.split(r"\.(?:\s|$)", answer)[0].strip(" :*")


def _last_formula(text: str) -> str | None:
    """Return the last formula; text between two dollar signs is one only if it has no words."""
    formulas = [match for match in _MATHS.finditer(text) if match["d"] is None or not _has_words(match["d"])]
    return _content(formulas[-1]) if formulas else None


def _content(match: re.Match[str]) -> str:
    return next(part for part in match.groups() if part is not None).strip()


def _has_words(text: str) -> bool:
    """Check whether a text has words that are not LaTeX."""
    return _WORD.search(_COMMAND.sub(" ", text)) is not None
