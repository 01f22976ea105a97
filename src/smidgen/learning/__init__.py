"""Learning on the host: epochs over labelled images on any device, checkpoints, and the model that comes of it."""

from smidgen.learning.checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from smidgen.learning.course import Course, Epoch, LearningProgress, RunPosition
from smidgen.learning.freezing import learned_graph
from smidgen.learning.run import Learned, LearningError, learn, top1

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Course",
    "Epoch",
    "Learned",
    "LearningError",
    "LearningProgress",
    "RunPosition",
    "learn",
    "learned_graph",
    "read_checkpoint",
    "top1",
    "write_checkpoint",
]
