"""The contestants: each is a program of its own that ends with ``result.json`` in its folder OUT."""
