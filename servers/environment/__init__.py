"""The environment server: one agent turn per episode, from the seed to the reward."""
