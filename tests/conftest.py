"""Two test processes share two cores: one thread each, in the commands they start as well."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)

pytest_plugins = ["stripes", "sayings", "bundles", "browsers"]
