"""The contestants: each is a program of its own, ``python -m bench.speed.contestants.NAME DATA OUT``.

DATA is the folder that `bench.speed.data` prepared, OUT an empty folder for all that the contestant writes; it ends
with ``result.json`` there.
"""
