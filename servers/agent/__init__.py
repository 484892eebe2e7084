"""The agent server: a loop of model calls and tool calls, inside agent sessions or as a whole flat-row run."""
