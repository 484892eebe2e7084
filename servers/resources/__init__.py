"""Reference resources servers."""
