"""The hash of every shipped recipe, alone and under each of its profiles.

    python -m tests.recipe.hashes

writes ``hashes.json`` anew. That is right where a recipe was changed on purpose, and wrong where only an option was
added: runs that exist are known by these hashes.
"""

from __future__ import annotations

import json
from pathlib import Path

from loopkit.recipe import RecipeError, load_recipe
from loopkit.recipe.layers import load_layers

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = Path(__file__).with_name("hashes.json")


def hashes() -> dict[str, str]:
    """Name, with the profile after a colon, to hash."""
    result = {}
    for file in sorted((ROOT / "recipes").rglob("*.yaml")):
        if file.parent.name == "studies":
            continue
        name = str(file.relative_to(ROOT / "recipes").with_suffix(""))
        for profiles in ((), *((profile,) for profile in load_layers(file).profiles)):
            try:
                recipe = load_recipe(file, profiles)
            except RecipeError:  # a parent may leave to its children what only they know
                continue
            somewhere = json.loads(json.dumps(recipe.values).replace(str(ROOT), "/checkout"))
            result[":".join((name, *profiles))] = recipe.identity.hash(somewhere)
    return result


if __name__ == "__main__":
    TABLE.write_text(json.dumps(hashes(), indent=1) + "\n")
