"""A board at the end of a byte stream: frames, requests that are done once, and a device that survives a bad line."""

from smidgen.link.connecting import LinkTarget, connect, fitting_target, open_port
from smidgen.link.device import LinkedDevice
from smidgen.link.frames import LinkError, Restarted, Stream
from smidgen.link.keeping import load_file, load_there, replay_there, save_file, save_there
from smidgen.link.line import Hello, Line, Statistics, Timing

__all__ = [
    "Hello",
    "Line",
    "LinkError",
    "LinkTarget",
    "LinkedDevice",
    "Restarted",
    "Statistics",
    "Stream",
    "Timing",
    "connect",
    "fitting_target",
    "load_file",
    "load_there",
    "open_port",
    "replay_there",
    "save_file",
    "save_there",
]
