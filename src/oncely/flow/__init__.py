"""ACTS: one pass of each thing that happens to a job, with no loops that outlive it."""
