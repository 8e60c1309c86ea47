"""How Sphinx builds these pages: ``make docs``. Pages are Markdown (MyST); the reference comes from docstrings."""

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

import hoptree

sys.path.insert(0, str(Path(__file__).parent))

project = "Hoptree"
author = "The Hoptree authors"
copyright = author  # noqa: A001 (Sphinx calls it so)
release = version = hoptree.__version__

lexers["mermaid"] = TextLexer()  # diagrams: GitHub draws them, and as text they can be read

extensions = ["myst_parser", "sphinx.ext.autodoc", "_commands", "_looks"]
exclude_patterns = ["_build", "README.md"]  # the README is for those who read in the repository

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # signatures stay short; types that matter are in the text
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "code"  # single backticks in docstrings

html_theme = "furo"
html_title = f"Hoptree {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
