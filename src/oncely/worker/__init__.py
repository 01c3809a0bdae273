"""REPEATS: the loops around one pass: pump, renew, upkeep, and how a worker starts and stops."""
