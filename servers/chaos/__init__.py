"""Rollouts under a supervisor while its servers are killed at random, and what became of them."""
