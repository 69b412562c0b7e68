"""Conversations as text, in the ChatML form. A plain function that sources and tasks share; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from loopkit.errors import UserError

OPEN, CLOSE = "<|im_start|>", "<|im_end|>"
"""What begins and ends a turn."""

REASONING_SYSTEM = "You are a helpful assistant that can assist users with reasoning."
"""The system prompt that Ouro is fine-tuned and evaluated with.

Paper: arXiv:2605.26733.
"""


def chatml(messages: Sequence[tuple[str, str]], *, open_turn: bool = False) -> str:
    """A conversation as one text.

    Every message is ``<|im_start|>ROLE`` and an end of line, its content, ``<|im_end|>`` and an end of line.

    Args:
        messages: (role, content) in order; roles are ``system``, ``user`` and ``assistant``.
        open_turn: Whether the text ends with the beginning of the assistant's next turn, for a model to go on.

    Raises:
        ValueError: If a role is another one, or a content holds a mark of the turns, which would end its turn.
    """
    for role, content in messages:
        if role not in ("system", "user", "assistant"):
            raise UserError(f"a message is of system, user or assistant, not of {role!r}")
        for mark in (OPEN, CLOSE):
            if mark in content:
                raise UserError(f"a message of {role} holds {mark!r}, which marks turns and cannot be part of one")
    turns = "".join(f"{OPEN}{role}\n{content}{CLOSE}\n" for role, content in messages)
    return turns + (f"{OPEN}assistant\n" if open_turn else "")
