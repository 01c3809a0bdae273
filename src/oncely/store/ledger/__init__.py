"""The ledger outside jobs: its tables in the user's own database, and how they are reached."""
