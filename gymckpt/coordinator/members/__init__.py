"""The participants of a run as the coordinator knows and reaches them."""
