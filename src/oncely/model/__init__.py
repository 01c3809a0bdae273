"""DECIDES: pure values and rules, with no I/O, no clock and no SQL."""
