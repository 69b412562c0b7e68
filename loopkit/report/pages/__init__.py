"""Reports as pages: Markdown, single-file HTML, and the model card."""
