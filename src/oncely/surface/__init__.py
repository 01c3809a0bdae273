"""SHOWS: the faces of Oncely: Python, command line, HTTP, dashboard."""
