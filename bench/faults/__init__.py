"""A campaign of faults: small studies that are disturbed while they run, and what came of them.

Hoptree is looked at from outside: a program of a user's, the command line, processes, signals and files.
"""
