"""Handlers as users write them, each with the verdict that the prover should give it.

`python -m tests.prove.zoo` proves all of them, or those whose names are given, and prints the
score.
"""
