"""REMEMBERS: the only room with SQL. Plans say what to ask, engines know how to ask it."""
