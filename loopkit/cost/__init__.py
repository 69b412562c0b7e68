"""What a recipe costs before it runs: FLOPs, memory, hardware, cluster layout, plan."""
