"""`oncely demo`: the promise, shown by processes that race, repeat and die."""
