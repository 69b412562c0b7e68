"""The gallery: a card and a page for each recipe, a page for each study, made from recipes and results alone."""

from loopkit.report.gallery.cards import gallery_page
from loopkit.report.gallery.entry import Cost, Entry, read_entry
from loopkit.report.gallery.evidence import Evidence, StudyFile, curves_of, evidence_of, read_study
from loopkit.report.gallery.recipe_page import recipe_page
from loopkit.report.gallery.study_page import studies_page, study_page

__all__ = [
    "Cost",
    "Entry",
    "Evidence",
    "StudyFile",
    "curves_of",
    "evidence_of",
    "gallery_page",
    "read_entry",
    "read_study",
    "recipe_page",
    "studies_page",
    "study_page",
]
