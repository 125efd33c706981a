"""Scale-out on torch.distributed: one population over several ranks, or whole populations on each."""

from .launch import particle_shard, run_populations, run_sharded
from .world import LostRank, World, device, leave, world

__all__ = ["LostRank", "World", "device", "leave", "particle_shard", "run_populations", "run_sharded", "world"]
