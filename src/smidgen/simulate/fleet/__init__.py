"""Many devices in lockstep: the compiled training graph in PyTorch over a device dimension, byte for byte."""

from smidgen.simulate.fleet.running import Simulation

__all__ = ["Simulation"]
