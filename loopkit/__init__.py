"""loopkit: recipes, components and measurements for looped language models."""

__version__ = "0.1.0"
