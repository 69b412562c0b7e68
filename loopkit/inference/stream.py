"""Text shown while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopkit.components.tokenizer import Tokenizer


class Stream:
    """Shows what is certain of a text: no half of a letter, and nothing that may turn out to begin a stop string.

    Args:
        tokenizer: Of the tokens.
        stop: Strings that end the text and are no part of it.
        show: Called with every new piece.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], show: Callable[[str], None]) -> None:
        self.tokenizer, self.show = tokenizer, show
        self.stop = tuple(stop)
        self._shown = ""

    def more(self, tokens: Sequence[int]) -> None:
        """All tokens so far."""
        text = self.tokenizer.decode(tokens).rstrip("\N{REPLACEMENT CHARACTER}")
        self._show(text[: len(text) - self._doubtful(text)])

    def end(self, text: str) -> None:
        """The whole text, as it was in the end; an end of line closes it."""
        self._show(text)
        self.show("\n")

    def _show(self, text: str) -> None:
        # a tokenizer may decode a beginning otherwise once more is known; what was shown cannot be taken back
        if len(text) > len(self._shown) and text.startswith(self._shown):
            self.show(text[len(self._shown) :])
            self._shown = text

    def _doubtful(self, text: str) -> int:
        """Letters from where a stop string stands, or may be beginning."""
        whole = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if whole:
            return len(text) - min(whole)
        begun = (n for stop in self.stop for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n]))
        return max(begun, default=0)
