"""A counter per session: the smallest resources server, and the example of embedding."""
