"""A board at the end of a byte stream: frames, requests that are done once, and a device that survives a bad line."""

from smidgen.link.connecting import connect, open_port
from smidgen.link.device import LinkedDevice
from smidgen.link.errors import LinkError
from smidgen.link.line import Hello, Line, Statistics, Timing
from smidgen.link.streams import Stream

__all__ = ["Hello", "Line", "LinkError", "LinkedDevice", "Statistics", "Stream", "Timing", "connect", "open_port"]
