"""Tables, plots and pages from the files of runs: evaluations, training curves, comparisons. No torch."""

from loopkit.report.compare import compare
from loopkit.report.console import console
from loopkit.report.pages.comparison import write_comparison
from loopkit.report.pages.run import write_report
from loopkit.report.plots.curve import training_curve
from loopkit.report.record import read_record
from loopkit.report.tables.averaged import averaged_report
from loopkit.report.tables.compare import comparison_report
from loopkit.report.tables.depth import depth_report

__all__ = [
    "averaged_report",
    "compare",
    "comparison_report",
    "console",
    "depth_report",
    "read_record",
    "training_curve",
    "write_comparison",
    "write_report",
]
