"""Reference pages: kinds, components, commands, file formats, run folder, JSON of evaluations."""

from docs.site.reference.command_page import command_page, commands_page
from docs.site.reference.component_page import component_page
from docs.site.reference.contract import contract_markdown
from docs.site.reference.format_page import format_page
from docs.site.reference.kind_page import kind_page, kinds_page
from docs.site.reference.outputs import evaluation_page, run_folder_page
from docs.site.reference.source_links import site_links

__all__ = [
    "command_page",
    "commands_page",
    "component_page",
    "contract_markdown",
    "evaluation_page",
    "format_page",
    "kind_page",
    "kinds_page",
    "run_folder_page",
    "site_links",
]
