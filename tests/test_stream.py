"""Uniforms from a counter: pure, addressable, and uniform.

The statistical tests have fixed seeds; each states the chance that a perfect generator would fail it.
"""

import math

import pytest
import torch

import truetilt as tt
from problems import z_limit
from truetilt.smc.sampler import DRAW, OUTPUT, RESAMPLE, Stream, _by_device, _by_host, _keys

SEEDS = [0, 1, 2, 12345, 2**63 - 1]
M = 1 << 17


def row(seed, step=3, purpose=DRAW, count=M):
    return Stream(seed).uniforms(step, purpose, 1, count)[0]


def test_uniforms_are_float64_in_zero_to_one():
    u = Stream(7).uniforms(0, DRAW, 64, 4096)
    assert u.dtype == torch.float64
    assert u.shape == (64, 4096)
    assert ((u >= 0) & (u < 1)).all()


def test_the_same_key_gives_the_same_bits():
    assert torch.equal(Stream(5).uniforms(2, RESAMPLE, 3, 50), Stream(5).uniforms(2, RESAMPLE, 3, 50))


def test_the_bits_do_not_change_from_release_to_release():
    """SplitMix64 in plain integers: seeds written down today must replay tomorrow."""
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    def by_hand(seed, population, step, purpose, counter):
        key = seed
        for word in (population, step, purpose):
            key = mix((mix(key) + (word + 1) * golden) & mask)
        return (mix((key + (counter + 1) * golden) & mask) >> 11) * 2.0**-53

    for seed in SEEDS:
        got = Stream(seed).uniforms(9, RESAMPLE, 3, 4, 100)
        expected = [[by_hand(seed, k, 9, RESAMPLE, c) for c in range(100, 104)] for k in range(3)]
        assert got.tolist() == expected


@pytest.mark.parametrize(("first", "last"), [(0, 5), (7, 40_000), (2**40, 2**40 + 3)])
def test_host_and_device_make_the_same_bits(first, last):
    keys = _keys(3, 2, 2**63 - 1, 9, RESAMPLE)
    device = _by_device(torch.from_numpy(keys.view("int64").copy()), first, last)
    assert torch.equal(torch.from_numpy(_by_host(keys, first, last)), device)


@pytest.mark.parametrize(("first", "last"), [(0, 10), (37, 64), (99, 100), (50, 50)])
def test_a_range_of_counters_is_a_slice_of_the_whole(first, last):
    whole = Stream(5).uniforms(2, DRAW, 3, 100)
    assert torch.equal(Stream(5).uniforms(2, DRAW, 3, last - first, first), whole[:, first:last])


@pytest.mark.parametrize("k", [0, 1, 6])
def test_a_population_alone_is_its_row_of_the_whole(k):
    whole = Stream(5).uniforms(2, DRAW, 7, 20)
    assert torch.equal(Stream(5, first_population=k).uniforms(2, DRAW, 1, 20)[0], whole[k])


def test_every_part_of_the_key_matters():
    rows = [
        row(0, count=100),
        row(1, count=100),
        row(0, step=4, count=100),
        row(0, purpose=RESAMPLE, count=100),
        row(0, purpose=OUTPUT, count=100),
        Stream(0, first_population=1).uniforms(3, DRAW, 1, 100)[0],
    ]
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            assert (a != b).all()


def test_parts_of_the_key_do_not_stand_in_for_each_other():
    every = {
        (seed, k, step, purpose): float(Stream(seed, k).uniforms(step, purpose, 1, 1))
        for seed in range(4)
        for k in range(4)
        for step in range(4)
        for purpose in range(3)
    }
    assert len(set(every.values())) == len(every)


def test_mean_variance_and_neighbours_are_those_of_independent_uniforms():
    """False alarm 5e-7: z-scores of mean, variance and three lags at five seeds, 25 in all."""
    limit = z_limit(25)
    for seed in SEEDS:
        v = row(seed) - 0.5
        scores = [v.mean() * math.sqrt(12 * M), (v.square().mean() - 1 / 12) * math.sqrt(180 * M)]
        scores += [12 * (v[lag:] * v[:-lag]).mean() * math.sqrt(M - lag) for lag in (1, 2, 64)]
        assert max(abs(float(z)) for z in scores) < limit


def test_keys_side_by_side_are_uncorrelated():
    """False alarm 5e-7: ten z-scores, of rows that differ in one part of the key by one."""
    limit = z_limit(10)
    for seed in (0, 1):
        v = row(seed) - 0.5
        others = [
            row(seed + 1),
            row(seed, step=4),
            row(seed, purpose=RESAMPLE),
            row(seed, purpose=OUTPUT),
            Stream(seed, 1).uniforms(3, DRAW, 1, M)[0],
        ]
        for other in others:
            assert abs(float(12 * (v * (other - 0.5)).mean() * math.sqrt(M))) < limit


def test_first_uniforms_of_many_populations_are_uniform():
    """False alarm 5e-7: mean and variance down the populations, at five seeds."""
    limit = z_limit(10)
    for seed in SEEDS:
        v = Stream(seed).uniforms(0, DRAW, 1 << 14, 1)[:, 0] - 0.5
        assert abs(float(v.mean() * math.sqrt(12 * len(v)))) < limit
        assert abs(float((v.square().mean() - 1 / 12) * math.sqrt(180 * len(v)))) < limit


@pytest.mark.parametrize("shift", [0, 20, 45], ids=["high bits", "middle bits", "low bits"])
def test_eight_bits_at_a_time_fill_256_bins_evenly(shift):
    """False alarm 1e-6 in all: chi-square, 255 degrees of freedom, too uneven or too even, 15 of them."""
    for seed in SEEDS:
        bits = (row(seed) * 2.0**53).long() >> (45 - shift)
        counts = torch.bincount(bits & 255, minlength=256).double()
        chi_square = ((counts - M / 256) ** 2).sum() / (M / 256)
        tail = float(torch.special.gammaincc(torch.tensor(127.5, dtype=torch.float64), chi_square / 2))
        assert 1e-6 / 30 < tail < 1 - 1e-6 / 30


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, math.nan])
def test_bad_seeds_are_rejected_by_name(seed):
    with pytest.raises(tt.InvalidInput, match=f"seed is {seed}"):
        Stream(seed)


def test_a_fractional_seed_is_rejected_by_name():
    with pytest.raises(tt.InvalidInput, match=r"seed is 1\.5"):
        Stream(1.5)


def test_bad_first_population_is_rejected_by_name():
    with pytest.raises(tt.InvalidInput, match="first_population is -1"):
        Stream(0, first_population=-1)
