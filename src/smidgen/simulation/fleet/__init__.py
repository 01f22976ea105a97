"""Many devices in lockstep: the compiled training graph in PyTorch over a device dimension, byte for byte."""

from smidgen.simulation.fleet.courses import simulate
from smidgen.simulation.fleet.results import FleetProgress, Simulated
from smidgen.simulation.fleet.running import Simulation

__all__ = ["FleetProgress", "Simulated", "Simulation", "simulate"]
