"""The layout of who descends from whom: against lines followed by hand, on random and on real genealogies."""

import numpy as np
import pytest
import torch

import truetilt as tt
from problems import table
from truetilt.smc.genealogy import lineage, roots
from truetilt.viz.genealogy_layout import columns, forest, leads_to, parents_between, places


def history(steps, particles, seed=0, often=1.0):
    """Ancestors [steps + 1, particles], redrawn at a share of the steps, in no order."""
    rng = np.random.default_rng(seed)
    ancestors = np.tile(np.arange(particles), (steps + 1, 1))
    for step in range(1, steps + 1):
        if rng.random() < often:
            ancestors[step] = rng.integers(0, particles, particles)
    return ancestors


CASES = [(1, 1, 1.0), (1, 5, 1.0), (6, 8, 0.5), (12, 30, 1.0), (40, 9, 0.2), (5, 4, 0.0)]
each_case = pytest.mark.parametrize(("steps", "particles", "often"), CASES)


def followed(ancestors, particle, step):
    """Where the line of a final particle stood after a step, one step at a time."""
    for later in range(len(ancestors) - 1, step, -1):
        particle = ancestors[later][particle]
    return int(particle)


def crossings(place, parents):
    """How often two particles stand in another order than their parents do."""
    count = 0
    for before, after, parent in zip(place[:-1], place[1:], parents, strict=True):
        a, b = np.meshgrid(np.arange(len(after)), np.arange(len(after)))
        count += int(((before[parent[a]] < before[parent[b]]) & (after[a] > after[b])).sum())
    return count


@each_case
def test_columns_keep_the_ends_and_lines_between_them_are_those_of_the_run(steps, particles, often):
    ancestors = history(steps, particles, often=often)
    told = columns(ancestors)
    assert (told[0], told[-1]) == (0, steps)
    line = np.arange(particles)
    for parent in reversed(parents_between(ancestors, told)):
        line = parent[line]
    assert line.tolist() == lineage(torch.as_tensor(ancestors)).tolist()


@each_case
def test_no_two_lines_cross(steps, particles, often):
    ancestors = history(steps, particles, often=often)
    parents = parents_between(ancestors, columns(ancestors))
    place = places(parents, particles)
    assert all(sorted(p.tolist()) == list(range(particles)) for p in place)
    assert crossings(place, parents) == 0


def test_particles_left_in_their_slots_would_cross():
    ancestors = history(6, 8)
    parents = parents_between(ancestors, columns(ancestors))
    assert crossings([np.arange(8)] * len(columns(ancestors)), parents) > 0


@each_case
def test_every_drawn_line_is_the_line_of_its_particle(steps, particles, often):
    ancestors = history(steps, particles, often=often)
    tree = forest(ancestors)
    place = places(parents_between(ancestors, tree.steps), particles)
    last = len(tree.steps) - 1
    ends = {c.particle: k for k, c in enumerate(tree.chains) if c.leads_to and c.start + len(c.places) - 1 == last}
    assert set(ends) == set(tree.shown) == set(range(particles))
    for particle, number in ends.items():
        spots = {}
        while number >= 0:
            chain = tree.chains[number]
            spots |= {chain.start + i: spot for i, spot in enumerate(chain.places)}
            number = chain.parent
        by_hand = [int(place[c][followed(ancestors, particle, step)]) for c, step in enumerate(tree.steps)]
        assert [spots[c] for c in range(last + 1)] == by_hand


@each_case
def test_counts_are_those_of_the_run(steps, particles, often):
    ancestors = history(steps, particles, often=often)
    tree = forest(ancestors)
    heirs = leads_to(parents_between(ancestors, tree.steps), particles)
    line = [[followed(ancestors, i, step) for i in range(particles)] for step in tree.steps]
    for column, found in enumerate(heirs):
        assert found.tolist() == [line[column].count(i) for i in range(particles)]
    assert tree.families[-1] == int(roots(torch.as_tensor(ancestors)))
    assert tree.families == sorted(tree.families, reverse=True)
    assert tree.dying == sum(tree.lost)
    starts = [c.leads_to for c in tree.chains if c.leads_to and c.parent < 0]
    assert sum(starts) == particles


def test_dead_lines_end_where_nobody_descends_from_them():
    ancestors = np.array([[0, 1, 2, 3], [0, 0, 2, 2], [0, 2, 0, 2]])
    tree = forest(ancestors)
    dead = [(c.start, c.places) for c in tree.chains if not c.leads_to]
    assert dead == [(0, [1]), (0, [3]), (0, [0, 1]), (0, [2, 3])]
    assert tree.lost == [0, 2, 2]


def test_large_runs_are_thinned_and_say_so():
    tree = forest(history(1000, 1000), 160, 60)
    assert len(tree.steps) <= 160
    assert (tree.steps[0], tree.steps[-1]) == (0, 1000)
    assert len(tree.shown) == 60
    assert len([c for c in tree.chains if not c.leads_to]) == 60 < tree.dying


def test_a_run_that_resampled_is_read_whole():
    result = tt.sample(table(tt.Masking, 4, 2).model(), 4.0, 1.0, particles=20, num_inference_steps=20,
                       resample=tt.multinomial)  # fmt: skip
    tree = forest(result.ancestors[:, 0].numpy())
    assert tree.families[-1] == int(result.roots[0]) < 20
