"""Which part of a text is its answer, and what that looks like to a parser of formulas. No torch."""

from __future__ import annotations

import re

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = re.compile(rf"(?<![\w.,)])-?(?:{NUMBER})(?:\s*/\s*(?:{NUMBER}))?(?:\s*%)?")
_SPACED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\[,; !]|[ ~\u00a0\u202f])\d{3})+(?!\d)")  # thousands set apart by blanks
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_PHRASE = re.compile(r"\banswer(?:\s+is|\s*:|\s+is\s*:)\s*(?P<answer>[^\n]+)", re.IGNORECASE)
_MATHS = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)|(?<![\\\d])\$(?P<d>[^$\n]+?)(?<!\\)\$", re.DOTALL
)
_COMMAND = re.compile(r"\\(?:text|mbox|textbf|mathrm|operatorname)\s*\{[^{}]*\}|\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|\\.")
_WORD = re.compile(r"(?<![A-Za-z])(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|pi|sqrt|max|min|mod)\b)[A-Za-z]{2,}")


def find_answer(text: str, marker: str = "####") -> str | None:
    r"""The answer that a text gives.

    The first of these that is there, and the last one of its kind: what is in ``\boxed{}``; what follows the marker on
    its line; what "the answer is" or "answer:" announces; a formula between ``$``, ``\(`` or ``\[``; the whole text,
    where it is nothing but a formula; a number.

    Args:
        text: A completion.
        marker: What stands before the answer.

    Returns:
        The answer as it was written; ``None`` where there is none.
    """
    boxed = _boxed(text)
    if boxed is None:
        text = text[: _cut_off(text)]
    for found in (boxed, _marked(text, marker), _announced(text), _formula(text)):
        if found is not None and found.strip():
            return found.strip()
    bare = text.strip()
    if "\n" not in bare and re.search(r"[^\W_]", bare) and not _has_words(bare):
        return bare
    numbers = _SIGNED.findall(text)
    return numbers[-1].strip() if numbers else None


def formula(answer: str) -> str:
    r"""An answer as a formula, without what surrounds one in prose: currencies, units in words, a full stop.

    ``$2,125`` and ``2{,}125 dollars`` become ``2,125``, ``3 boys and 4 girls`` becomes ``3, 4``. LaTeX is left to the
    parser.
    """
    found = re.sub(r"^[*_`\s]+|[*_`\s.]+$", "", answer)
    maths = _MATHS.fullmatch(found)
    if maths:
        found = _content(maths)
    found = found.replace("{,}", ",").replace(r"\$", "")
    found = re.sub(r"[$€£¥]", "", found).strip()
    if "\\" not in found and "=" not in found:
        found = re.sub(r"\s*\b(?:and|or)\b\s*", ", ", re.sub(r",\s*(and|or)\b", r" \1", found))
        if _WORD.search(found) and (numbers := _SIGNED.findall(found)):
            return ", ".join(number.strip() for number in numbers)
    return _SPACED.sub(lambda match: re.sub(r"\D", "", match.group()), found)


def _boxed(text: str) -> str | None:
    r"""What the last ``\boxed`` holds whose brace is closed; also ``\boxed 3``."""
    for begin in reversed(list(_BOX.finditer(text))):
        rest = text[begin.end() :]
        if not rest.startswith("{"):
            if one := re.match(r"[\w.,]+", rest):
                return one.group()
            continue
        depth = 0
        for place, letter in enumerate(rest):
            depth += {"{": 1, "}": -1}.get(letter, 0) if place == 0 or rest[place - 1] != "\\" else 0
            if depth == 0:
                return rest[1:place]
    return None


def _cut_off(text: str) -> int | None:
    """Where a box begins that the text ends in the middle of."""
    begins = [match.start() for match in _BOX.finditer(text)]
    return begins[0] if begins else None


def _marked(text: str, marker: str) -> str | None:
    _, found, after = text.rpartition(marker)
    return after.strip().partition("\n")[0] if found else None


def _announced(text: str) -> str | None:
    """What the last sentence says that announces an answer: its formula, its number, or its words."""
    phrases = list(_PHRASE.finditer(text))
    if not phrases:
        return None
    said = phrases[-1]["answer"].strip()
    inside = _formula(said)
    if inside is not None:
        return inside
    if _has_words(said) and (number := _SIGNED.search(said)):
        return number.group()
    return re.split(r"\.(?:\s|$)", said)[0].strip(" :*")


def _formula(text: str) -> str | None:
    """The last formula; what stands between two signs of dollars is one only if it has no words."""
    formulas = [match for match in _MATHS.finditer(text) if match["d"] is None or not _has_words(match["d"])]
    return _content(formulas[-1]) if formulas else None


def _content(match: re.Match[str]) -> str:
    return next(part for part in match.groups() if part is not None).strip()


def _has_words(text: str) -> bool:
    """Whether there are words in a text that are not LaTeX."""
    return _WORD.search(_COMMAND.sub(" ", text)) is not None
