"""A page of pictures: one HTML file without scripts, which loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from smidgen.results.figures import Figure
from smidgen.results.svg import FONT, GRID, INK, svg

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{figures}
</body>
</html>
"""
STYLE = f"""
body {{ font-family: sans-serif; margin: 1.5rem auto; max-width: 1400px; padding: 0 1rem; color: {INK}; }}
p {{ max-width: 60rem; }}
th {{ text-align: left; vertical-align: top; padding-right: 1.5rem; }} td {{ padding-bottom: 0.4rem; }}
svg {{ width: 100%; height: auto; margin: 1rem 0; font-size: {FONT}px; fill: {INK}; }}
svg .title {{ font-size: 15px; }}
svg .middle {{ text-anchor: middle; }} svg .end {{ text-anchor: end; }}
svg .sign {{ paint-order: stroke; stroke: white; stroke-width: 3px; }}
svg .grid {{ stroke: {GRID}; }} svg .axis {{ stroke: {INK}; fill: none; }}
svg rect {{ shape-rendering: crispEdges; }} svg .line {{ stroke-width: 2px; }}
svg .apart {{ stroke: white; stroke-width: 0.5px; }}
svg rect:hover, svg circle:hover {{ stroke: black; stroke-width: 1.5px; }}
"""


def page_of(title: str, summary: str, figures: Sequence[Figure], rows: Sequence[tuple[str, str]] = ()) -> str:
    """Pictures under a heading, a sentence and a table, as a page that needs nothing else; same input, same bytes."""
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>\n" for name, said in rows)
    table = f"<table>\n{cells}</table>\n" if rows else ""
    drawn = table + "\n".join(map(svg, figures))
    return PAGE.format(title=escape(title), style=STYLE, summary=escape(summary), figures=drawn)
