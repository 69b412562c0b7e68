"""Plots of evaluations, training runs, comparisons and studies."""
