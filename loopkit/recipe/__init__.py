"""Recipes: read, composed, checked and resolved, with every problem reported at once. No torch."""

from loopkit.recipe.node import Origin, Problem, RecipeError
from loopkit.recipe.read import yaml_text
from loopkit.recipe.recipe import Recipe, component, load_recipe, problems_of, recipe_of
from loopkit.recipe.shipped import shipped_recipes

__all__ = [
    "Origin",
    "Problem",
    "Recipe",
    "RecipeError",
    "component",
    "load_recipe",
    "problems_of",
    "recipe_of",
    "shipped_recipes",
    "yaml_text",
]
