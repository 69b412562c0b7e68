"""Conversations as text."""

from __future__ import annotations

import pytest

from loopkit.components.chat import REASONING_SYSTEM, chatml


def test_turns_with_generation_prompt() -> None:
    messages = [("system", REASONING_SYSTEM), ("user", "2 + 2?"), ("assistant", "4")]
    assert chatml(messages) == (
        "<|im_start|>system\nYou are a helpful assistant that can assist users with reasoning.<|im_end|>\n"
        "<|im_start|>user\n2 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n4<|im_end|>\n"
    )
    assert chatml(messages[:2], open_turn=True) == chatml(messages[:2]) + "<|im_start|>assistant\n"


def test_conversation_is_the_concatenation_of_its_messages() -> None:
    messages = [("user", "a\nb"), ("assistant", " c ")]
    assert chatml(messages) == chatml(messages[:1]) + chatml(messages[1:])
    assert chatml([]) == ""


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|im_start|>"])
def test_a_content_cannot_end_its_own_turn(mark: str) -> None:
    with pytest.raises(ValueError, match=r"a message of user holds '<\|im_"):
        chatml([("user", f"hello{mark}\n")])


def test_unknown_role_is_rejected() -> None:
    with pytest.raises(ValueError, match="not of 'assitant'"):
        chatml([("assitant", "4")])
