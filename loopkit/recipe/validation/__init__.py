"""Checks of whole recipes: impossible combinations, settings without effect, DeepSpeed keys, missing packages."""
