"""The reference pages: kinds, components, commands, the recipe format, the run folder, the JSON of evaluations."""

from loopkit.report.reference.command_page import command_page, commands_page
from loopkit.report.reference.component_page import component_page
from loopkit.report.reference.contract import contract_markdown, contract_text
from loopkit.report.reference.format_page import format_page
from loopkit.report.reference.kind_page import kind_page, kinds_page
from loopkit.report.reference.outputs import evaluation_page, run_folder_page
from loopkit.report.reference.source_links import site_links

__all__ = [
    "command_page",
    "commands_page",
    "component_page",
    "contract_markdown",
    "contract_text",
    "evaluation_page",
    "format_page",
    "kind_page",
    "kinds_page",
    "run_folder_page",
    "site_links",
]
