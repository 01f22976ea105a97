"""Learning on the host: epochs over labelled images on any device, checkpoints, and the model that comes of it."""

from smidgen.learning.checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from smidgen.learning.course import Course, Epoch, LearningProgress, RunPosition
from smidgen.learning.freezing import learned_graph
from smidgen.learning.run import Learned, LearningError, learn
from smidgen.learning.testing import Tested, measure, top1

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Course",
    "Epoch",
    "Learned",
    "LearningError",
    "LearningProgress",
    "RunPosition",
    "Tested",
    "learn",
    "learned_graph",
    "measure",
    "read_checkpoint",
    "top1",
    "write_checkpoint",
]
