"""The gallery: a card and a page for each recipe, and a page for each study, generated from recipes and results."""

from docs.site.gallery.cards import gallery_page
from docs.site.gallery.entry import Cost, RecipeEntry, read_entry
from docs.site.gallery.evidence import Evidence, StudyFile, curves_of, evidence_of, read_study
from docs.site.gallery.recipe_page import recipe_page
from docs.site.gallery.study_page import studies_page, study_page

__all__ = [
    "Cost",
    "Evidence",
    "RecipeEntry",
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
