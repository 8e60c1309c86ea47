"""Settings of all tests."""

from hypothesis import settings

# A busy machine is slow at times; how long an example takes is never what a test is about.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

collect_ignore = ["system/tiny_study.py"]  # a user's program: whoever imports it makes a dataset in this folder
