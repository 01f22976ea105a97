"""A page that learns in the browser: a program as WebAssembly, its facts and its script in one file, and a server."""

from smidgen.play.facts import Asked, begin, measure, plan
from smidgen.play.page import PlayPage, draw_play, play_page
from smidgen.play.serving import serve

__all__ = ["Asked", "PlayPage", "begin", "draw_play", "measure", "plan", "play_page", "serve"]
