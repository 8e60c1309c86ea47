"""A study in a file for other machines, and what comes of it there."""
