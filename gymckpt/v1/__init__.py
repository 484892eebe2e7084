"""Messages and service stubs generated from `protos/gymckpt/v1` by `make gen`."""
