"""A study as a file for other machines, and comparison with what they train."""
