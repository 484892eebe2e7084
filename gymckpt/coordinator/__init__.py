"""The coordinator: drives all participants and publishes checkpoints."""
