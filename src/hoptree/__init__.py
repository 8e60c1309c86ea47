"""Hoptree."""
