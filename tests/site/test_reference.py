"""The reference pages, from synthetic components and commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from docs.site.reference import command_page, component_page, run_folder_page
from docs.site.reference.source_text import source_path
from loopkit.registry.schema import Provider
from loopkit.registry.source import read_components
from loopkit.report.pages.docstring import body, is_equation, plain, sections

SOURCE = '''
@register("readout", "mine", paper="arXiv:1234.56789", needs={"gate"})
class Mine(Readout):
    """Half of the state.

    z = h / 2

    Small letters are vectors.

    Args:
        share: How much, <b>bold</b> | not.

    Raises:
        ValueError: If it is nothing.

    Paper: They print a third.
    """

    def __init__(self, *, share: Share = 0.5, norm: Factory[Norm] = use("rmsnorm"), size: PositiveInt) -> None: ...
'''


def test_component_page_has_schema_and_docstring(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    (schema,) = read_components(file, Provider("their-package", "1.2", "mine"))
    page = component_page(schema, [], {}, tmp_path)
    assert "# readout/mine\n\nHalf of the state.\n\n```text\nz = h / 2\n```\n\nSmall letters are vectors." in page
    assert "| paper | [arXiv:1234.56789](https://arxiv.org/abs/1234.56789) |" in page
    assert "| source | `mine.py:3` |" in page
    assert "| from | their-package 1.2 |" in page
    assert "| needs | `gate` |" in page
    assert "| `share` | a number &gt;= 0 and &lt;= 1 | `0.5` | How much, &lt;b&gt;bold&lt;/b&gt; \\| not. |" in page
    assert "| `norm` | a norm → [norm](../norm/index.md) | `rmsnorm` |" in page
    assert "| `size` | an integer &gt; 0 | **required** |" in page
    assert "## Paper\n\nThey print a third." in page
    assert "No recipe of the gallery uses it." in page
    assert '    @register("readout", "mine"' in page


@pytest.mark.parametrize(
    ("block", "equation"),
    [
        ("c = s", True),
        ("W_out gelu(W_up x)", True),
        ("x + f(N(x))", True),
        ("    n = ||s||\n    m = 2 n", True),
        ("losses:  L = mean of sum_k p_k nll_k\nlogits:  L = 0", True),
        ("J is taken at the last state of the step.", False),
        ("With the default, z = h. It is cheap.", False),
    ],
)
def test_is_equation(block: str, equation: bool) -> None:
    assert is_equation(block) is equation


def test_docstring_sections() -> None:
    doc = "One.\n\nArgs:\n    a: b\n\nShapes:\n    x [B, T]\n    to y.\n\nPaper: so."
    assert body(doc) == "One."
    assert sections(doc) == {"Shapes": "x \\[B, T\\] to y.", "Paper": "so."}


def test_plain_joins_paragraphs_and_keeps_equations() -> None:
    doc = (
        "One.\n\nz = s^alpha * h / s\nt = s\n\nIn training ``ema`` takes its scale\nfrom the batch.\n\nArgs:\n    a: b"
    )
    assert plain(doc) == "One.\n\nz = s^alpha * h / s\nt = s\n\nIn training ema takes its scale from the batch."


def test_command_page_has_usage_options_subcommands() -> None:
    @click.group(help="All of it.")
    def group() -> None: ...

    @group.command("inner", help="One.\n\n\b\nas\n  it is")
    @click.argument("what")
    @click.option("--count", "-c", type=int, default=3, help="How many.")
    @click.option("--kind", type=click.Choice(["a", "b"]), required=True)
    @click.option("--flag", is_flag=True, help="Or not.")
    def inner(what: str, count: int, kind: str, flag: bool) -> None: ...

    page = command_page("group", group)
    assert "# loopkit group\n\n```text\nloopkit group [OPTIONS] COMMAND [ARGS]..." in page
    assert "## inner" in page
    assert "loopkit group inner [OPTIONS] WHAT" in page
    assert "```text\nas\n  it is\n```" in page
    assert "| `--count`, `-c` `INTEGER` | How many. | `3` |" in page
    assert "| `--kind` `[a|b]` | **Required.** |" in page
    assert "| `--flag` | Or not. |  |" in page


def test_run_folder_page_lists_every_path(root: Path) -> None:
    page = run_folder_page(root / "loopkit/runs/folder.py")
    for place in ("recipe.yaml", "resolved.yaml", "metrics.jsonl", "checkpoints", "eval", "report.md", "report.html"):
        assert f"| `{place}` |" in page


def test_source_path_is_relative_to_project_or_package(tmp_path: Path) -> None:
    assert source_path(tmp_path / "loopkit/a.py", tmp_path) == "loopkit/a.py"
    assert source_path(Path("/x/lib/site-packages/their/a.py"), tmp_path) == "their/a.py"
    assert source_path(Path("/x/pkg/src/their/a.py"), tmp_path) == "their/a.py"
