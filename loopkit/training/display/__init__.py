"""Output of a run besides its folder: progress on the terminal, throughput, trackers."""
