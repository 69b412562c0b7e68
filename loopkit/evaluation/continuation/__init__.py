"""Likelihoods of texts that continue a prompt, at every depth from one pass."""
