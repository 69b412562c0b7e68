"""Models of other tools: published checkpoint folders in and out."""

from loopkit.interop.exporting import Exported, export_run
from loopkit.interop.importing import Imported, import_folder

__all__ = ["Exported", "Imported", "export_run", "import_folder"]
