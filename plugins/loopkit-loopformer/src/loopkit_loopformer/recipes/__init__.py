"""Recipes of this package; loopkit finds the folder through the entry point ``loopkit.recipes``."""
