"""What a run shows and logs: progress on the terminal, throughput, trackers."""
