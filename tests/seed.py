"""Where the tests draw their random choices from: one seed for a run, which can be set.

`ONCELY_SEED=… pytest …` makes the choices of that run again. Processes that a run starts, those of
pytest-xdist among them, inherit its seed.
"""

import os
import random
import secrets

VARIABLE = "ONCELY_SEED"


def seed() -> str:
    """The seed of this run: what the environment says, else a new one."""
    return os.environ.setdefault(VARIABLE, str(secrets.randbelow(10**9)))


def dice(name: str) -> random.Random:
    """The choices of one test, or of one part of it: the same whatever else draws in the run."""
    return random.Random(f"{seed()}:{name}")
