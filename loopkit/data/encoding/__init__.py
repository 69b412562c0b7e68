"""Encode text once: the token store, its cache, and the identity of data."""
