"""The Workplace Assistant: seven tables per session, 27 tools over them, and a reward that compares final tables."""
