"""Ranks: process group, launcher, errors of ranks, watchdog, and the import of DeepSpeed."""
