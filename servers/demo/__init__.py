"""The demo: rollouts run, every process is killed, the rollouts go on from a checkpoint, and nothing differs from a run without a crash."""
