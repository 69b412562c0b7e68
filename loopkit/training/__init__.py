"""Training: the DeepSpeed engine, the loop, resume, progress, and what a run will cost."""
