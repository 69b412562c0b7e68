"""Tables and plots from what runs left behind: evaluations, training curves, comparisons. No torch."""

from loopkit.report.compare import compare
from loopkit.report.compare_plot import plot_comparison
from loopkit.report.compare_table import comparison_report
from loopkit.report.comparison_page import write_comparison
from loopkit.report.console import console
from loopkit.report.curve_plot import plot_curves, training_curve
from loopkit.report.depth_plot import plot_depths
from loopkit.report.depth_table import depth_report
from loopkit.report.record import Record, read_record
from loopkit.report.run_report import write_report
from loopkit.report.training_plot import plot_training

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
