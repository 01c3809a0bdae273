"""`oncely torture`: processes are killed, or stopped and continued; what is left is checked."""
