"""A page that learns in the browser: a program as WebAssembly, its facts and its script in one file, and a server."""

from smidgen.play.facts import Asked, begin, measure, plan
from smidgen.play.page import draw_play
from smidgen.play.serving import serve

__all__ = ["Asked", "begin", "draw_play", "measure", "plan", "serve"]
