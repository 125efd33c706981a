"""The registry of samplers: every name runs, and hits its target if it weighs."""

import pytest
import torch

import truetilt as tt
from truetilt.commands.samplers import SAMPLERS
from truetilt.smc.resampling import never

GENERATOR = torch.Generator().manual_seed(0)
TABLE = tt.Table(tt.Masking(3), *(0.1 + torch.rand(3, 3, generator=GENERATOR, dtype=torch.float64) for _ in range(2)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_estimates_log_z(name):
    """Unweighted ones say 0; a sampler with another alpha would miss by 0.13 or more."""
    model, sampler = TABLE.model(), SAMPLERS[name]
    fk, grid = sampler.build(model, 3.0), sampler.grid(model, 60)
    result = tt.run(fk, grid, particles=4000, seed=1, resample=sampler.resample, couple=sampler.couple)
    if sampler.resample is never:
        assert result.log_z == 0
        return
    exact = TABLE.log_z_tilted if name.startswith("tilted") else TABLE.log_z_tempered
    assert result.log_z == pytest.approx(float(exact(3.0)), abs=0.06)
