"""Fixtures of reports that the pages of the site share."""

from tests.report.conftest import sample

__all__ = ["sample"]
