"""``loopkit generate``: text, JSON, conversations and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loopkit.cli import main

Generate = Callable[..., str]


@pytest.fixture
def generate(runs: Path) -> Generate:
    def run(*words: str, code: int = 0, text: str | None = None) -> str:
        words = ("generate", *words, "--runs", str(runs), "--max-tokens", "12")
        result = CliRunner().invoke(main, list(words), input=text, prog_name="loopkit")
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


def records(output: str) -> list[dict[str, Any]]:
    completions: list[dict[str, Any]] = json.loads(output)["completions"]
    return completions


def test_batching_does_not_change_completions(generate: Generate) -> None:
    both = json.loads(generate("tiny", "--prompt", "The 3rd", "--prompt", "line of a", "--depth", "3", "--json"))
    assert (both["run"], both["depth"], both["dtype"], both["checkpoint"]) == ("tiny", 3, "fp32", "step-00000001")
    single = [records(generate("--prompt", text, "--depth", "3", "--json")) for text in ("The 3rd", "line of a")]
    assert both["completions"] == [record for part in single for record in part]
    assert [record["prompt"] for record in both["completions"]] == ["The 3rd", "line of a"]
    assert both["completions"][0]["num_tokens"] == 12
    assert not both["completions"][0]["finished"]


def test_option_and_standard_input_are_equal(generate: Generate) -> None:
    text = records(generate("--prompt", "The 3rd", "--json"))[0]["text"]
    assert generate("tiny", "--prompt", "The 3rd") == text + "\n"
    assert generate("tiny", text="The 3rd\n") == text + "\n"


def test_sampling_is_seeded(generate: Generate) -> None:
    samples = [generate("--prompt", "The", "--temperature", "2", "--seed", seed) for seed in ("1", "1", "2")]
    assert samples[0] == samples[1] != samples[2]


def test_chat_formats_a_conversation(generate: Generate) -> None:
    prompt = records(generate("--prompt", "Hi?", "--chat", "--system", "Be brief.", "--json"))[0]["prompt"]
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n"
    )
    prompt = records(generate("--prompt", "Hi?", "--chat", "--system", "", "--json"))[0]["prompt"]
    assert prompt.startswith("<|im_start|>user\nHi?")


def test_user_errors_have_a_message(generate: Generate) -> None:
    assert "the prompt is empty" in generate("tiny", text="", code=2)
    assert "add --chat" in generate("tiny", "--prompt", "a", "--system", "b", code=2)
    assert "nowhere" in generate("nowhere", "--prompt", "a", code=2)


def test_file_of_prompts_is_continued(generate: Generate, tmp_path: Path) -> None:
    """Completions equal those of single prompts; a file that was cut off is completed, and a complete one is kept."""
    prompts = ["The 3rd", "line of a", "says 4", "short"]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    words = ("--file", str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "out.jsonl"), "--batch", "3")
    assert "4 completions, " in generate(*words)
    lines = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    written = {record["index"]: record for record in map(json.loads, lines)}
    expected = records(generate(*(word for prompt in prompts for word in ("--prompt", prompt)), "--json"))
    for index, record in enumerate(expected):
        assert {key: written[index][key] for key in record} == record
        assert (written[index]["depth"], written[index]["top_k"]) == (4, None)
    (tmp_path / "out.jsonl").write_text("".join(lines[:2]) + lines[2][:9])
    assert "2 completions in" in generate(*words)
    assert sorted((tmp_path / "out.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)
    assert "0 completions, 0 tokens" in generate(*words)
    assert "completion of other settings" in generate(*words, "--depth", "2", code=2)


@pytest.mark.parametrize("words", [("--file", "a"), ("--out", "b"), ("--file", "a", "--out", "b", "--prompt", "c")])
def test_file_and_out_belong_together(generate: Generate, words: tuple[str, ...]) -> None:
    assert "--file and --out belong together" in generate(*words, code=2)


def test_top_k_of_one_is_greedy(generate: Generate) -> None:
    greedy = generate("--prompt", "The")
    assert generate("--prompt", "The", "--temperature", "2", "--top-k", "1") == greedy
    assert generate("--prompt", "The", "--temperature", "2", "--min-p", "1") == greedy


def test_exit_stops_looping_and_reports_mean_depth(generate: Generate) -> None:
    exit = ("--exit", "depth", "--set", "exit.loops=1")
    output = json.loads(
        generate("tiny", "--prompt", "The 3rd", "--depth", "4", *exit, "--json").partition("\n12 tokens")[0]
    )
    assert output["completions"][0]["mean_depth"] == pytest.approx((4 + 11) / 12)
    text = generate("tiny", "--prompt", "The 3rd", "--depth", "4", *exit, "--exit-level", "sequence")
    assert text.startswith(generate("tiny", "--prompt", "The 3rd", "--depth", "1").removesuffix("\n"))
    assert "tokens/s, mean depth 1" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exit", "dept"], "depth"),
        (["--exit", "depth", "--set", "exit.loop=1"], "loops"),
        (["--exit", "depth", "--set", "exit.loops=0"], "exit.loops"),
        (["--set", "exit.loops=1"], "there is no exit to change; add --exit NAME"),
        (["--exit", "depth", "--set", "model.width=3"], "only exit.* can be set"),
        (["--exit", "gate_cdf"], "gate"),
    ],
)
def test_invalid_exits_are_rejected(generate: Generate, options: list[str], message: str) -> None:
    assert message in generate("tiny", "--prompt", "The 3rd", *options, code=2)


def test_completions_of_another_exit_are_refused(generate: Generate, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('"The 3rd"\n"line of a"\n')
    files = ("--file", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl"))
    assert "24 tokens at" in generate("tiny", *files, "--exit", "depth")
    assert '"exit": {"type": "depth"}, "exit_level": "token"' in (tmp_path / "out.jsonl").read_text()
    assert "other settings" in generate("tiny", *files, code=2)


def test_drafts_give_the_tokens_of_full_depth(generate: Generate) -> None:
    plain = generate("tiny", "--prompt", "The 3rd", "--depth", "4")
    draft = generate("tiny", "--prompt", "The 3rd", "--depth", "4", "--draft-depth", "1", "--draft-tokens", "2")
    assert draft.startswith(plain.removesuffix("\n"))
    assert "12 tokens at" in draft
    assert "has depth 1 to 3, not 4" in generate(
        "tiny", "--prompt", "The", "--depth", "4", "--draft-depth", "4", code=2
    )
