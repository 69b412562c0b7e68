"""Modelling code of exported folders, copied into each of them. It imports torch and transformers, never loopkit.

``layers``, ``parts`` and ``looped`` need only torch. An export makes the imports between these modules relative.
"""
