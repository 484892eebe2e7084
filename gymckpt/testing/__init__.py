"""For people who test their own fleets: faults of the network between two processes. Needs no test framework."""

from gymckpt.testing.proxy import TcpProxy, Way

__all__ = ["TcpProxy", "Way"]
