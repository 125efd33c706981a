"""Two test processes share two cores: one thread each, in the commands they start as well.

A job that a shell starts with & ignores SIGINT, and so would all that it starts. Tests send it: it is heeded here, and
with its default handler in what tests start.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal

import torch

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["stripes", "sayings", "bundles", "browsers"]
