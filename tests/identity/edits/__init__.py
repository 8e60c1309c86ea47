"""Edits of programs, by topic: each says whether it changes what is trained."""
