"""Edits of programs, by topic: each says whether it affects training."""
