"""Antibodies: a tiny network in AntiBERTy's file format, redesigns against enumeration, and input that is refused."""

import math
import time

import pytest
import torch

import truetilt as tt
from antibody_nets import tensors, write_antiberty
from truetilt.antibodies.masked_readings import hidden_sites
from truetilt.antibodies.network import framed, read_network
from truetilt.antibodies.numbering import HEAVY, LIGHT, VariableDomain, domain_of, number_domains
from truetilt.antibodies.redesign import load_antiberty
from truetilt.antibodies.rewards import Pull, substitution_costs
from truetilt.core.fasta import AMINO_ACIDS, ProteinSequence, letters_of, read_fasta, tokens_of, write_fasta
from truetilt.models.net_score import NetScore

PARENT = "QVQLKWS"
OPEN = (1, 4)


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return load_antiberty(batch=8, folder=write_antiberty(tmp_path_factory.mktemp("antiberty")))


@torch.no_grad()
def log_laws(nets, x):
    """log p(residue) [B, L, 20] and log p(species) [B, 6] straight from the parts, frame and all."""
    hidden = nets.net.bert.bert(framed(x)).last_hidden_state
    residues = nets.net.bert.cls(hidden)[:, 1:-1, 5:].double().log_softmax(-1)
    return residues, nets.net.heads["species"](torch.tanh(nets.net.pooler(hidden[:, 0]))).double().log_softmax(-1)


def read_as_it_is(nets, whole):
    """log p(human) of chains [B, L] in one reading."""
    return log_laws(nets, whole)[1][:, 1]


def exact_law(nets, order, alpha, pull, sharpness, unseen=(), human=read_as_it_is):
    """log pi of all 400 fillings of two open sites (unnormalised), by enumeration."""
    every = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    whole = tokens_of(PARENT).repeat(400, 1)
    first, second = OPEN[order[0]], OPEN[order[1]]
    whole[:, OPEN[0]], whole[:, OPEN[1]] = every[:, 0], every[:, 1]
    seen = whole.index_fill(-1, torch.tensor(list(unseen), dtype=torch.int64), 20)
    none = seen.clone()
    none[:, list(OPEN)] = 20
    one = seen.clone()
    one[:, second] = 20
    log_p = log_laws(nets, none[:1])[0][0, first][whole[:, first]]
    log_p = log_p + log_laws(nets, one)[0][:, second].gather(-1, whole[:, second : second + 1])[:, 0]
    changes = (whole != tokens_of(PARENT)).sum(-1)
    return sharpness * log_p + alpha * human(nets, whole) - pull * changes


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("unseen", [(), (5,)])
def test_the_limit_is_the_target(nets, order, unseen):
    """Infinitely many particles have exactly the law that enumeration gives, and its normalising constant."""
    redesign = tt.Redesign(nets, tokens_of(PARENT), OPEN, unseen)
    fk = redesign.target(alpha=2.0, pull=0.7, sharpness=1.3, order=order)
    log_pi = exact_law(nets, order, 2.0, 0.7, 1.3, unseen)
    found = tt.flow(fk, fk.grid, 21, len(OPEN))
    law = found.law.reshape(21, 21)[:20, :20].reshape(-1)
    torch.testing.assert_close(law, log_pi.softmax(0), atol=1e-6, rtol=1e-4)
    assert float(found.log_z) == pytest.approx(float(log_pi.logsumexp(0)), abs=1e-5)


LOOPS = (0, 5)
HIDDEN = ((0, 1, 5), (0, 4, 5), (0, 1, 5))  # of three readings: the loops in all, and half of the open sites


def masked_readings(nets, whole):
    """The mean log p(human) over the three readings, straight from the parts."""
    return torch.stack([read_as_it_is(nets, whole.index_fill(-1, torch.tensor(sites), 20)) for sites in HIDDEN]).mean(0)


def log_mean_of_readings(nets, whole):
    """A wrong variant: the log of the mean p(human)."""
    each = [read_as_it_is(nets, whole.index_fill(-1, torch.tensor(sites), 20)) for sites in HIDDEN]
    return torch.stack(each).exp().mean(0).log()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("unseen", [(), (5,)])
def test_the_limit_with_masked_readings_is_the_target(nets, order, unseen):
    """The head is asked once on the way, and three times about finished chains, which is what they are weighed by."""
    redesign = tt.Redesign(nets, tokens_of(PARENT), OPEN, unseen, LOOPS)
    fk = redesign.target(alpha=20.0, pull=0.7, sharpness=1.3, order=order, readings=3)
    found = tt.flow(fk, fk.grid, 21, len(OPEN))
    law = found.law.reshape(21, 21)[:20, :20].reshape(-1)
    log_pi = exact_law(nets, order, 20.0, 0.7, 1.3, unseen, masked_readings)
    torch.testing.assert_close(law, log_pi.softmax(0), atol=1e-6, rtol=1e-4)
    assert float(found.log_z) == pytest.approx(float(log_pi.logsumexp(0)), abs=1e-5)
    for wrong in (read_as_it_is, log_mean_of_readings):  # all of it seen; p in place of log p
        other = exact_law(nets, order, 20.0, 0.7, 1.3, unseen, wrong).softmax(0)
        assert float((law - other).abs().sum() / 2) > 1e-3


def test_readings_hide_the_loops_and_every_open_site_alike():
    assert hidden_sites(OPEN, LOOPS, 3) == HIDDEN
    open_sites, loops = tuple(range(10, 90)), (3, 4)
    hidden = hidden_sites(open_sites, loops, 10)
    assert all({*loops} <= {*sites} for sites in hidden)
    assert all(28 <= len(sites) - 2 <= 52 for sites in hidden)  # about half of 80
    assert {sum(site in sites for sites in hidden) for site in open_sites} == {5}
    assert hidden == hidden_sites(open_sites, loops, 10)


def test_each_reading_is_a_pass(tmp_path):
    nets = load_antiberty(batch=8, folder=write_antiberty(tmp_path))
    redesign = tt.Redesign(nets, tokens_of(PARENT), OPEN, (), LOOPS)
    x = torch.tensor([[0, 1], [2, 1], [2, 3]])
    redesign.log_species(readings=3)(x, 0.0)
    assert nets.net.evaluated == 2 + 2  # of nine readings, those that differ
    redesign.log_species(readings=3)(x, 0.0)
    redesign.log_species()(x, 0.0)
    assert nets.net.evaluated == 4 + 3


def test_another_order_is_another_law(nets):
    """The network's conditionals disagree: the wrong order is seen."""
    laws = [exact_law(nets, order, 2.0, 0.7, 1.3).softmax(0) for order in ((0, 1), (1, 0))]
    assert float((laws[0] - laws[1]).abs().sum() / 2) > 1e-3


def test_particles_hit_the_target(nets):
    redesign = nets.redesign(PARENT, OPEN)
    fk = redesign.target(alpha=3.0, pull=1.0, sharpness=1.0, order=(0, 1))
    result = tt.run(fk, particles=1000, populations=16, seed=3)
    log_pi = exact_law(nets, (0, 1), 3.0, 1.0, 1.0)
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    exact = log_pi.softmax(0).reshape(20, 20)
    assert abs(result.log_z - float(log_pi.logsumexp(0))) < 0.03
    for site in (0, 1):  # 16,000 independent draws miss a law of 20 tokens by about .014
        law = torch.zeros(20, dtype=torch.float64).index_add(0, x[:, site], weights)
        assert float((law - exact.sum(1 - site)).abs().sum() / 2) < 0.03


def test_a_residue_that_is_kept_is_never_drawn(nets):
    redesign = nets.redesign(PARENT, OPEN)
    result = tt.run(redesign.target(), particles=32, seed=0)
    for chain in redesign.spell(result.particles.flatten(0, 1)):
        assert [a for k, a in enumerate(chain) if k not in OPEN] == [a for k, a in enumerate(PARENT) if k not in OPEN]


def test_a_kept_loop_that_were_noised_would_be_seen(nets):
    """A wrong variant: with the kept residues open too, they change."""
    everywhere = nets.redesign(PARENT, range(len(PARENT)))
    chains = everywhere.spell(tt.run(everywhere.target(), particles=32, seed=0).particles.flatten(0, 1))
    assert any(chain[3] != PARENT[3] for chain in chains)


@torch.no_grad()
def test_the_frame_is_read(nets):
    """A wrong variant: without CLS and SEP the network says something else."""
    x = tokens_of(PARENT)[None].clone()
    x[0, 2] = 20
    score = NetScore(nets.net, tt.Masking(20), batch=2)
    ours = score(x, 0.3).normalised().dense()[0, 2]
    torch.testing.assert_close(ours.double(), log_laws(nets, x)[0][0, 2], atol=1e-5, rtol=1e-5)
    bare = nets.net.bert(torch.where(x == 20, 4, x + 5)).logits[0, 2, 5:].log_softmax(-1)
    assert float((bare - ours).abs().max()) > 0.05


@torch.no_grad()
def test_what_is_remembered_changes_no_answer(tmp_path):
    """Answers about sequences asked before, in other batches, are the bits of fresh ones."""
    folder = write_antiberty(tmp_path)
    x = torch.randint(0, 21, (6, 9), generator=torch.Generator().manual_seed(0))
    warm, cold = read_network(folder), read_network(folder)
    warm.answer(x[[3, 1, 1, 0, 2, 5]])
    for mine, fresh in zip(warm.answer(x), cold.answer(x), strict=True):
        assert torch.equal(mine, fresh)


def test_heads_by_sequence(nets):
    species = nets.log_species([PARENT, "QVQ"])
    torch.testing.assert_close(species[0], log_laws(nets, tokens_of(PARENT)[None])[1][0], atol=1e-5, rtol=1e-5)
    assert species.shape == (2, 6)


def test_the_pull_counts_changes_or_asks_a_matrix():
    x = torch.tensor([[0, 1], [3, 1], [3, 4], [20, 1]])
    assert Pull(torch.tensor([0, 1]), 2.0)(x).tolist() == [0, -2, -4, 0]
    scores = {a: {b: 4 if a == b else -1 - (a == "A") for b in AMINO_ACIDS} for a in AMINO_ACIDS}
    costs = substitution_costs(scores)
    assert float(costs.sum()) == pytest.approx(380)
    assert Pull(torch.tensor([0, 1]), 1.0, costs)(x)[1] == -costs[0, 3]
    with pytest.raises(tt.InvalidInput, match="diagonal"):
        Pull(torch.tensor([0, 1]), 1.0, costs + 1)


def domain(chain=HEAVY, scheme="kabat"):
    return VariableDomain(chain, scheme, 2, tuple(range(1, 114)))


@pytest.mark.parametrize(("scheme", "first", "last"), [("kabat", 31, 102), ("imgt", 27, 117)])
def test_loops_lie_where_the_scheme_says(scheme, first, last):
    found = VariableDomain(HEAVY, scheme, 2, tuple(range(1, 129)))
    assert found.cdrs[0][0] == first + 1  # counted from 0, after two residues before the domain
    assert found.cdrs[2][-1] == last + 1
    assert set(found.framework).isdisjoint({site for loop in found.cdrs for site in loop})
    assert len(found.open_framework) == len(found.framework) - 8
    assert min(found.framework) == 2


def test_light_chains_have_loops_of_their_own():
    assert domain(LIGHT).cdrs[0][0] == 24 + 1
    assert domain(LIGHT).cdrs != domain(HEAVY).cdrs


def test_loops_are_kept_and_may_be_unseen(nets):
    chain = ("QVQLKWS" * 9)[:60]
    numbered = VariableDomain(HEAVY, "kabat", 0, (*range(1, 40), *range(60, 66), *range(90, 105)))
    redesign = nets.redesign(chain, unseen_cdrs=(2,), domain=numbered)
    assert redesign.open_sites == numbered.open_framework
    assert redesign.unseen == numbered.cdrs[1] == tuple(range(39, 45))
    assert redesign.loops == tuple(sorted(site for loop in numbered.cdrs for site in loop))
    assert [site for site, token in enumerate(redesign.given) if token is None] == list(redesign.open_sites)


def test_an_answer_of_the_numberer_is_read():
    letters = "MM" + "QVQLKWS" * 9
    numbered = [((k, " "), letter) for k, letter in zip([*range(1, 40), *range(60, 84)], letters[2:], strict=True)]
    answer = {"numbering": [*numbered, ((90, " "), "-")], "chain_type": "H", "error": None}
    with pytest.raises(tt.InvalidInput, match="no CDR 3"):
        domain_of(answer, "x", letters, "kabat")
    further = [((k + 20 * (k > 65), " "), letter) for (k, _), letter in numbered]
    whole = domain_of(answer | {"numbering": further}, "x", letters, "kabat")
    assert whole.start == 2
    assert whole.cdrs[2] == tuple(range(56, 64))
    with pytest.raises(tt.InvalidInput, match="stretch"):
        domain_of(answer | {"numbering": numbered[:5] + numbered[6:]}, "x", letters, "kabat")


BAD_FASTA = {
    "": "no sequence",
    "QVQL\n": "without a name",
    ">a\n": "one-letter code",
    ">a\nACGTACGTNN\n": "DNA or RNA",
    ">a\nQVQXLK\n": "residue 4 is 'X'",
    ">a\nQVQ-LK\n": "residue 4 is '-'",
}


@pytest.mark.parametrize(("text", "words"), BAD_FASTA.items())
def test_a_bad_fasta_is_refused(tmp_path, text, words):
    (tmp_path / "x.fa").write_text(text)
    with pytest.raises(tt.InvalidInput, match=words):
        read_fasta(tmp_path / "x.fa")


def test_a_fasta_is_read_and_written(tmp_path):
    (tmp_path / "x.fa").write_text(">one chain\nqvq\nLKW*\n\n>\nWWW\n")
    found = read_fasta(tmp_path / "x.fa")
    assert found == [ProteinSequence("one chain", "QVQLKW"), ProteinSequence("sequence 2", "WWW")]
    write_fasta(tmp_path / "y.fa", [*found, ProteinSequence("long", "QV" * 50)])
    assert read_fasta(tmp_path / "y.fa")[2].letters == "QV" * 50
    assert letters_of(tokens_of("QVW")[None]) == ["QVW"]


def test_a_fasta_is_read_in_linear_time(tmp_path):
    """900,000 lines of one sequence: 1 s; joined line by line it was 14 s."""
    (tmp_path / "x.fa").write_text(">long\n" + "ACDEFGHI\n" * 900_000)
    begun = time.process_time()
    (found,) = read_fasta(tmp_path / "x.fa")
    assert len(found.letters) == 7_200_000
    assert time.process_time() - begun < 6


def test_what_is_no_antibody_by_length_is_refused():
    with pytest.raises(tt.InvalidInput, match="has 7 residues"):
        number_domains({"x": PARENT})
    with pytest.raises(tt.InvalidInput, match="scheme is 'chothia'"):
        number_domains({"x": "Q" * 110}, "chothia")


def test_bad_questions_are_refused(nets):
    redesign = nets.redesign(PARENT, OPEN)
    for call, words in {
        (lambda: nets.redesign("QVXL", (0,))): "residue 3",
        (lambda: nets.redesign("Q" * 70, (0,))): "the network reads 62",
        (lambda: nets.redesign(PARENT, (0, 0))): "1 of them different",
        (lambda: nets.redesign(PARENT, (9,))): "an open site",
        (lambda: redesign.target("martian")): "camel, human",
        (lambda: redesign.target(alpha=-1)): "alpha is -1",
        (lambda: redesign.target(pull=math.nan)): "pull",
        (lambda: redesign.target(sharpness=0)): "sharpness is 0",
        (lambda: redesign.target(order=(0, 0))): "order is",
        (lambda: redesign.target(readings=-1)): "readings is -1",
        (lambda: redesign.annealed(readings=65)): "readings is 65",
    }.items():
        with pytest.raises(tt.InvalidInput, match=words):
            call()


def test_files_that_do_not_fit_are_refused(tmp_path):
    short = tensors()
    short.pop("cls.species.bias")
    with pytest.raises(tt.InvalidInput, match="1 tensors missing"):
        read_network(write_antiberty(tmp_path / "short", short))
    broken = tensors()
    broken["cls.species.bias"][0] = math.nan
    with pytest.raises(tt.InvalidInput, match="NaN"):
        read_network(write_antiberty(tmp_path / "broken", broken))
    other = write_antiberty(tmp_path / "other")
    (other.parent / "vocab.txt").write_text("[PAD] A C")
    with pytest.raises(tt.InvalidInput, match="another network"):
        read_network(other)


def test_a_package_that_is_not_there_is_named():
    with pytest.raises(tt.InvalidInput, match="antiberty"):
        tt.load("antiberty", compile=True)


@pytest.mark.parametrize("readings", [0, 2])
def test_annealing_ends_in_the_same_law(nets, readings):
    """With one open residue the conditionals agree with themselves: the limit of annealing is the target exactly."""
    redesign = tt.Redesign(nets, tokens_of(PARENT), OPEN[:1], (), LOOPS)
    asked = {"alpha": 3.0, "pull": 2.0, "sharpness": 1.7, "readings": readings}
    fk, plain = redesign.annealed(**asked, start=0.3, sweeps=3), redesign.target(**asked)
    found, exact = tt.flow(fk, fk.grid, 21, 1), tt.flow(plain, plain.grid, 21, 1)
    torch.testing.assert_close(found.law, exact.law, atol=1e-6, rtol=1e-4)
    assert float(found.log_z) == pytest.approx(float(exact.log_z), abs=1e-5)
    with pytest.raises(tt.InvalidInput, match="start is 0"):
        redesign.annealed(start=0)


def test_annealing_of_several_residues_says_that_log_p0_drifts(nets):
    """Moves redraw from conditionals that disagree: what weights hold is measured against the order, and is told."""
    redesign = nets.redesign(PARENT, (1, 2, 4))
    asked = {"alpha": 3.0, "pull": 0.5, "sharpness": 3.0}
    result = tt.run(redesign.annealed(**asked, sweeps=4), particles=64, populations=4, seed=0)
    found = result.settings["measured"]["drift"]
    assert found > 0.05
    assert result.trust().verdict != "trust"
    assert any("away from what the run's order gives" in reason for reason in result.trust().reasons)
    plain = tt.run(redesign.target(**asked), particles=64, populations=4, seed=0)
    assert "drift" not in plain.settings["measured"]


@pytest.mark.parametrize(
    "costs", [torch.ones(20, 20), torch.full((20, 20), math.nan), -torch.ones(20, 20), torch.zeros(3, 3), [1.0]]
)
def test_costs_that_are_none_are_refused(nets, costs):
    with pytest.raises(tt.InvalidInput, match="costs of changes"):
        nets.redesign(PARENT, OPEN).target(costs=costs)
