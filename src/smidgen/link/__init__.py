"""A board at the end of a byte stream: frames, requests that are done once, and a device that survives a bad line."""

from smidgen.link.device import LinkedDevice, LinkTarget, connect, fitting_target, open_port
from smidgen.link.frames import LinkError, Restarted, Stream
from smidgen.link.line import (
    Hello,
    Line,
    Statistics,
    Timing,
    load_file,
    load_there,
    replay_there,
    save_file,
    save_there,
)

__all__ = [
    "Hello", "Line", "LinkError", "LinkTarget", "LinkedDevice", "Restarted", "Statistics", "Stream", "Timing",
    "connect", "fitting_target", "load_file", "load_there", "open_port", "replay_there", "save_file", "save_there",
]  # fmt: skip
