"""A store that is reached over HTTP, through a server."""
