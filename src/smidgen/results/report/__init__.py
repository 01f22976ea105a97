"""The report: what a fit or a training run found, as one page that needs nothing else."""

from smidgen.results.report.parts import Report, Section
from smidgen.results.report.rendering import render

__all__ = ["Report", "Section", "render"]
