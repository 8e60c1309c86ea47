"""Settings of all tests."""

import os

from hypothesis import settings

# Ray runs workers with a niceness of 15: beside other programs, which is what tests on a busy machine are, they get
# next to nothing of the processor.
os.environ.setdefault("RAY_worker_niceness", "0")

# A busy machine is slow at times; how long an example takes is never what a test is about.
# A change lands or not for what it does, not for the examples that were drawn that day: `make test` draws the same
# ones every time, and `make test-slow` draws others (`--hypothesis-profile=explore`).
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("same")

collect_ignore = ["system/tiny_study.py"]  # a user's program: whoever imports it makes a dataset in this folder
