"""Ranks: the process group, the launcher, errors and hangs of ranks, and the import of DeepSpeed."""
