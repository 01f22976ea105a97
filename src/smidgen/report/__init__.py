"""Pictures of what a program is: its memory."""

from smidgen.report.lifecycle import LifeCycle, life_cycle
from smidgen.report.memory import draw_memory

__all__ = ["LifeCycle", "draw_memory", "life_cycle"]
