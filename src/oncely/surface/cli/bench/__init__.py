"""`oncely bench`: how fast the queue is on this database, and what a job costs it."""
