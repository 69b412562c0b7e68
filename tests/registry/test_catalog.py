"""Finding components: built-ins, installed packages, local files, and what happens when they clash or break."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loopkit.registry.catalog import AmbiguousComponent, BrokenComponent, Catalog, UnknownComponent, builtin_offers
from loopkit.registry.module_files import module_file
from loopkit.registry.plugins import Offer, installed_offers
from loopkit.registry.source import SourceProblem

SOURCE = '''
from __future__ import annotations
from loopkit.components.readout import Readout
from loopkit.registry import register

@register("readout", "{name}")
class Mine(Readout):
    """A readout."""
    def forward(self, h, k, at):
        return h
'''


def install(folder: Path, package: str, name: str, source: str) -> None:
    """Lay out what an installed distribution leaves on the path."""
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[loopkit.readout]\n{name} = {package}:Mine\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def full() -> Catalog:
    return Catalog((*builtin_offers(), *installed_offers()))


def test_installed_plugin_is_listed_without_import(site: Path) -> None:
    install(site, "mine_a", "loud", SOURCE.format(name="loud"))
    schema = full().get("readout", "loud")
    assert "mine_a" not in sys.modules
    assert str(schema.provider) == "mine_a 1.2"
    assert schema.load().__name__ == "Mine"


def test_builtin_takes_precedence_with_warning(site: Path) -> None:
    install(site, "mine_b", "raw", SOURCE.format(name="raw"))
    with pytest.warns(UserWarning, match=r"loopkit's own; the plugin's is called mine_b:raw"):
        assert full().get("readout", "raw").provider.package == "loopkit"
    assert full().get("readout", "mine_b:raw").provider.package == "mine_b"


def test_ambiguous_name_is_an_error_when_used(site: Path) -> None:
    install(site, "mine_c", "twice", SOURCE.format(name="twice"))
    install(site, "mine_d", "twice", SOURCE.format(name="twice"))
    catalog = full()
    assert catalog.get("readout", "norm")
    with pytest.raises(AmbiguousComponent, match=r"mine_c 1\.2 .* mine_d 1\.2") as caught:
        catalog.get("readout", "twice")
    assert "mine_c:twice or mine_d:twice" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "message"),
    [("def broken(:\n", "syntax error"), (SOURCE.format(name="other"), "registers no readout called 'broken'")],
)
def test_broken_plugin_fails_only_when_used(site: Path, source: str, message: str) -> None:
    install(site, "mine_e", "broken", source)
    catalog = full()
    assert catalog.get("readout", "norm")
    assert "broken" in catalog.names("readout")
    with pytest.raises(BrokenComponent, match=message):
        catalog.get("readout", "broken")


def test_import_error_is_unchanged_with_note(site: Path) -> None:
    install(site, "mine_f", "needy", SOURCE.format(name="needy") + "\nimport not_there\n")
    with pytest.raises(ModuleNotFoundError, match="not_there") as caught:
        full().load("readout", "needy")
    assert "mine_f.py" in caught.value.__notes__[0]


def test_unknown_name_has_a_hint() -> None:
    with pytest.raises(UnknownComponent) as caught:
        full().get("readout", "rwa")
    assert "did you mean 'raw'" in caught.value.hint


def test_local_file_adds_components(tmp_path: Path) -> None:
    file = tmp_path / "local.py"
    file.write_text(SOURCE.format(name="local"))
    schema = full().with_files([file]).get("readout", "local")
    assert schema.load() is schema.load()
    file.write_text("def broken(:")
    with pytest.raises(SourceProblem, match="syntax error"):
        full().with_files([file])


def test_module_is_located_without_import(site: Path) -> None:
    (site / "outer").mkdir()
    (site / "outer" / "__init__.py").write_text("raise SystemExit")
    (site / "outer" / "inner.py").write_text("")
    assert module_file("outer.inner") == site / "outer" / "inner.py"
    assert module_file("outer.nothing") is None


def test_builtin_offers_are_readable() -> None:
    assert [offer for offer in builtin_offers() if not isinstance(offer, Offer) or offer.problem] == []
