"""Coordinated checkpoints of in-flight RL rollouts over several server processes.

`gymckpt.participant` is what a server embeds, `gymckpt.coordinator` what a controller calls, `gymckpt.store` where
artifacts are kept, `gymckpt.errors` what they raise.
"""
