"""Coordinated checkpoints of in-flight RL rollouts over several server processes."""
