"""Learning on the host: epochs over labelled images on any device, checkpoints, and the model that comes of it."""

from smidgen.learning.checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from smidgen.learning.course import Course, Epoch, LearningProgress, RunPosition
from smidgen.learning.heads import CheckedHead, check_head
from smidgen.learning.models import Extended, extend, in_order_of, learned_graph, same_classes
from smidgen.learning.run import Learned, LearningError, learn
from smidgen.learning.testing import Tested, measure, top1

__all__ = [
    "CheckedHead", "Checkpoint", "CheckpointError", "Course", "Epoch", "Extended", "Learned", "LearningError",
    "LearningProgress", "RunPosition", "Tested", "check_head", "extend", "in_order_of", "learn", "learned_graph",
    "measure", "read_checkpoint", "same_classes", "top1", "write_checkpoint",
]  # fmt: skip
