"""Checkpoints: what they contain, when they are written and kept, and how a run resumes from them."""
