"""The early-exit benchmark: calibrated on one slice, measured and timed on another."""
