"""The command line: each command is a thin call into a client."""
