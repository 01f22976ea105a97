"""Many devices in lockstep: the compiled training graph in PyTorch over a device dimension, byte for byte."""

from smidgen.simulation.courses import FleetProgress, Simulated, simulate
from smidgen.simulation.running import Simulation

__all__ = ["FleetProgress", "Simulated", "Simulation", "simulate"]
