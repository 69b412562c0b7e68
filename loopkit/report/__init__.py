"""Tables and plots from what runs left behind: evaluations, training curves, comparisons. No torch."""

from loopkit.report.compare import compare
from loopkit.report.console import console
from loopkit.report.pages.comparison import write_comparison
from loopkit.report.pages.run import write_report
from loopkit.report.plots.compare import plot_comparison
from loopkit.report.plots.curve import plot_curves, training_curve
from loopkit.report.plots.depth import plot_depths
from loopkit.report.plots.training import plot_training
from loopkit.report.record import Record, read_record
from loopkit.report.tables.compare import comparison_report
from loopkit.report.tables.depth import depth_report

__all__ = [
    "Record",
    "compare",
    "comparison_report",
    "console",
    "depth_report",
    "plot_comparison",
    "plot_curves",
    "plot_depths",
    "plot_training",
    "read_record",
    "training_curve",
    "write_comparison",
    "write_report",
]
