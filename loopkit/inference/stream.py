"""Display of text while it is generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopkit.components.tokenizer import Tokenizer


class Stream:
    """Shows the final part of a text: no incomplete characters, and no possible prefix of a stop string.

    Args:
        tokenizer: Decodes the tokens.
        stop: Strings that end the text and do not belong to it.
        show: Called with every new piece of text.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], show: Callable[[str], None]) -> None:
        self.tokenizer, self.show = tokenizer, show
        self.stop = tuple(stop)
        self._shown = ""

    def update(self, tokens: Sequence[int]) -> None:
        """Show the new part of the text of all tokens so far."""
        text = self.tokenizer.decode(tokens).rstrip("\N{REPLACEMENT CHARACTER}")
        self._show(text[: len(text) - self._num_uncertain(text)])

    def end(self, text: str) -> None:
        """Show the rest of the final text, and a line end."""
        self._show(text)
        self.show("\n")

    def _show(self, text: str) -> None:
        # a tokenizer may decode a prefix differently when more tokens follow; shown text cannot be changed
        if len(text) > len(self._shown) and text.startswith(self._shown):
            self.show(text[len(self._shown) :])
            self._shown = text

    def _num_uncertain(self, text: str) -> int:
        """Count the characters from the start of a stop string, or of a possible prefix of one at the end."""
        starts = [start for stop in self.stop if (start := text.find(stop)) >= 0]
        if starts:
            return len(text) - min(starts)
        prefixes = (n for stop in self.stop for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n]))
        return max(prefixes, default=0)
