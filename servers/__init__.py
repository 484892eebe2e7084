"""Reference Gym servers, written only against the public names of gymckpt."""
