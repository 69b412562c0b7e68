"""Text written for authors of recipes: the editor schema, new recipes, descriptions of options."""
