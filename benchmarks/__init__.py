"""Measurements of speed and memory against plain PyTorch; not part of the package."""
