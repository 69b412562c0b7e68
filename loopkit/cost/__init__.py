"""Estimate the cost of a recipe before it runs: FLOPs, memory, hardware, cluster layout, plan."""
