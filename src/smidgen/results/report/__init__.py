"""The report: the results of a fit or a training run as one page that loads nothing."""

from smidgen.results.report.page import Report, Section, render

__all__ = ["Report", "Section", "render"]
