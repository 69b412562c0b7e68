"""The tiny recipe of the training tests."""

from tests.training.conftest import fast_process, recipe

__all__ = ["fast_process", "recipe"]
