"""Runs as models of lm-eval, at a fixed depth or with an early exit."""
