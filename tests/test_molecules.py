"""Molecules: sampling against enumeration on a tiny network, what masked rows are worth, fragments, and refusals."""

import json
import math
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from tiny_molecules import LENGTH, V, keeping, tiny_molecules, write_tiny
from truetilt.cli.main import app
from truetilt.commands.sample_molecules import molecule_twist
from truetilt.core import chemistry
from truetilt.core.evaluation import Batch, RunLog, ask
from truetilt.models.hub import embedded
from truetilt.models.net_score import Padded, class_log_probs
from truetilt.models.pretrained import read_card
from truetilt.molecules.fragments import likeliest, places
from truetilt.molecules.rewards import PropertyScore, bell, logp_near, qed, together, within
from truetilt.molecules.twist import PropertyBins, bin_values
from truetilt.viz.molecules import MoleculeView
from truetilt.viz.view_choice import view_of

pytest.importorskip("tokenizers")
needs_rdkit = pytest.mark.skipif(find_spec("rdkit") is None, reason="needs truetilt[chem]")
END, C = 0, 1
ORDER = tuple(range(LENGTH))


@pytest.fixture(scope="module")
def nets():
    return tiny_molecules()


@torch.no_grad()
def log_p0(nets, rows, given):
    """log p of whole rows [n, D] drawn from left to right around what is given, straight from the network."""
    found = torch.zeros(len(rows), dtype=torch.float64)
    for site in (k for k in range(LENGTH) if given[k] is None):
        x = rows.clone()
        x[:, [k for k in range(site, LENGTH) if given[k] is None]] = V
        sigma = torch.ones(len(x))
        law = nets.net.head(nets.net.trunk(x, sigma)[:, site], sigma)[:, :V].double().log_softmax(-1)
        by_net, at_end = law.gather(-1, rows[:, site : site + 1])[:, 0], rows[:, site] == END
        behind = (rows[:, :site] == END).any(-1)  # there all is end, by definition
        found += torch.where(behind, torch.where(at_end, 0.0, -math.inf), by_net)
    return found


def worth(rows):
    """A reward that forbids some rows."""
    return torch.where(rows[:, 0] == END, -math.inf, (rows == C).sum(-1) - 0.3 * rows[:, -1].double())


def ended(rows):
    """The rows with nothing behind an end, which nobody reads."""
    return torch.where((rows == END).cumsum(-1) > 0, END, rows)


def test_behind_an_end_no_network_is_asked(nets):
    """p(end) = 1 exactly at masked sites behind an end; a row with no other masked site costs no evaluation."""
    score, inner = nets.model().base, nets.model().base.score
    x = torch.tensor([[C, END, V], [C, V, V], [V, END, V], [END, V, V], [C, C, V]])
    batch = Batch(x, RunLog())
    law = nets.process.posterior(ask(score, batch, 0.5), x, 0.5).dense()
    assert batch.log.evaluations == 3
    ends = torch.tensor([0.0, -math.inf, -math.inf, -math.inf])
    assert all(law[row, site].equal(ends) for row, site in ((0, 2), (2, 2), (3, 1), (3, 2)))
    by_net = nets.process.posterior(inner(x, 0.5), x, 0.5).dense()
    assert all(law[row, site].equal(by_net[row, site]) for row, site in ((1, 1), (1, 2), (2, 0), (4, 2)))
    assert score(x[1:2], 0.5).dense().equal(inner(x[1:2], 0.5).dense())
    rates = score(x, 0.5).dense().exp().sum(-1)[0, 2]
    assert float(rates) == pytest.approx(math.exp(nets.process.log_odds_kept(0.5)))


def test_wrong_when_the_network_is_asked_behind_an_end(nets):
    """The same sampler on the network's own answers: rows would go on behind their end."""
    own = replace(nets.model(), base=nets.model().base.score)
    drawn = [tt.run(tt.Composed(model, order=ORDER), particles=256, seed=0) for model in (nets.model(), own)]
    rows = [result.particles.reshape(-1, LENGTH) for result in drawn]
    assert rows[0].equal(ended(rows[0]))
    assert not rows[1].equal(ended(rows[1]))
    assert drawn[0].spent.evaluations < drawn[1].spent.evaluations


@pytest.mark.parametrize("order", [None, ORDER])
def test_every_sampler_ends_a_row(nets, order):
    """Also out of order, and in clock time: an end that is seen has only ends behind it from then on."""
    found = tt.run(tt.Composed(nets.model(), order=order), particles=64, seed=1).particles.reshape(-1, LENGTH)
    assert found.max() < V


@pytest.mark.parametrize("given", [(None,) * LENGTH, (None, C, None)])
@pytest.mark.parametrize("candidates", [None, 2])
def test_the_limit_is_the_enumerated_target(nets, given, candidates):
    """p0(x) exp(strength r(x)), with the potential as twist and a kept piece: law and constant, to rounding."""
    mine = nets if given[1] is None else keeping(nets, given)
    model, size = mine.model(), mine.length
    every = torch.cartesian_prod(*[torch.arange(V)] * size).reshape(-1, size)
    rows = mine.whole(every)
    log_pi = log_p0(nets, rows, given) + 1.5 * worth(ended(rows))

    def reward(x):
        return worth(ended(mine.whole(x)))

    fk = tt.Composed(
        model, reward=reward, strength=1.5, twist=mine.twist(qed, 1.5, reward), candidates=candidates,
        order=tuple(range(size)),
    )  # fmt: skip
    limit = tt.flow(fk, fk.grid, V + 1, size)
    clean = (limit.states < V).all(-1)
    place = (limit.states[clean] * V ** torch.arange(size).flip(0)).sum(-1)
    found = torch.full((V**size,), -math.inf, dtype=torch.float64).scatter(0, place, limit.log_mass[clean])
    assert float(limit.log_mass[clean].logsumexp(0)) == pytest.approx(float(log_pi.logsumexp(0)), abs=1e-6)
    assert (found.softmax(0) - log_pi.softmax(0)).abs().max() < 1e-6


def test_the_potential_tells_what_is_expected_of_a_masked_row(nets):
    """log E[exp(strength f) | x_t]: the bins' probabilities times the mean of exp(strength f) over each bin."""
    x = torch.tensor([[C, V, V], [V, V, END]])
    p = class_log_probs(Padded(nets.potential, 8), x, 0.5).exp()
    inner = sum(math.exp(3 * (0.2 + 0.4 * (k + 0.5) / 33)) for k in range(33)) / 33
    by_hand = p[:, 0] * math.exp(0.3) + p[:, 1] * inner + p[:, 2] * math.exp(2.4)
    assert torch.allclose(nets.twist(qed, 3.0)(x, 0.5), by_hand.log() / 3)
    hard = nets.twist(within("qed", 0.5), 1.0)(x, 0.5).exp()
    assert torch.allclose(hard, p[:, 1] * 8 / 33 + p[:, 2])
    both = nets.twist(together((qed, 3.0), (logp_near(2.0), 1.0)), 1.0)(x, 0.5)
    apart = nets.twist(together((qed, 3.0)), 1.0)(x, 0.5) + nets.twist(logp_near(2.0), 1.0)(x, 0.5)
    assert torch.allclose(both, apart)
    assert nets.twist(lambda mol: 1.0) is None


def test_bins_count_as_their_edges_or_their_means():
    found = bin_values([0.0, 1.0], [-2.0, 0.5, 3.0], PropertyScore("logp", lambda value: bell(value, 0.5, 1.0)), 1.0)
    assert found[0] == pytest.approx(-3.125)
    assert -0.125 < found[1] < 0
    assert found[2] == pytest.approx(-3.125)
    with pytest.raises(tt.InvalidInput, match="2 edges and 1 means"):
        PropertyBins({"qed": {"edges": [0.1, 0.2], "means": [0.0]}})


def test_a_fragment_stands_in_every_place_that_leaves_its_gaps_open():
    assert list(places([[], [7], []], 4, 0)) == [(None, 7, None, None), (None, None, 7, None)]
    assert list(places([[7, 8], []], 4, 0)) == [(7, 8, None, None)]
    assert list(places([[], [7]], 4, 0)) == [(None, 7, 0, 0), (None, None, 7, 0)]
    assert list(places([[5], [6], [7]], 6, 0)) == [(5, None, 6, None, 7, 0)]  # an end fits behind the last part


def test_the_likeliest_place_is_taken(nets):
    """The product of what the network says of each kept piece, given those before it."""
    rows = [(None, 2, 3), (2, 3, None), (2, 3, END)]

    def chance(row):
        x, total = torch.full((1, LENGTH), V), 0.0
        for site, token in ((k, token) for k, token in enumerate(row) if token is not None):
            total += float(nets._log_posterior(x)[0, site, token])
            x[0, site] = token
        return total

    assert likeliest(rows, nets._log_posterior, V, END) == max(rows, key=chance)


def test_rows_without_rdkit_are_shown_as_pieces(nets, monkeypatch):
    monkeypatch.setattr("truetilt.viz.molecules.has_rdkit", lambda: False)
    view = view_of(nets.view.described())
    assert view == nets.view
    assert isinstance(view, MoleculeView)
    x = torch.tensor([[C, 2, END], [C, V, V]]).numpy()
    assert "<p>CN" in view.tile(x[0], None)
    assert "▢▢" in view.tile(x[1], x[0])
    assert view.picture(x, torch.ones(2).numpy() / 2) == ""


def test_a_missing_rdkit_is_one_line(nets, monkeypatch, tmp_path):
    monkeypatch.setattr(chemistry, "has_rdkit", lambda: False)
    chemistry.rdkit.cache_clear()
    for call in (lambda: tt.load("molecules"), lambda: nets.reward(qed), lambda: nets.fix("c1ccccc1")):
        with pytest.raises(tt.InvalidInput, match=r"RDKit, which is not installed: pip install 'truetilt\[chem\]'"):
            call()
    told = CliRunner().invoke(app, ["sample", "molecules", "--reward", "qed", "--out", str(tmp_path)])
    assert told.exit_code == 2
    assert "pip install 'truetilt[chem]'" in told.output
    chemistry.rdkit.cache_clear()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "molecules", "--reward", "taste"], "the reward 'taste' is not known; give qed"),
        (["sample", "molecules", "--reward", "logp=much"], "'much' is no number"),
        (
            ["sample", "molecules", "--reward", "qed>2"],
            "no molecule has qed between 2 and inf; qed lies between 0 and 1",
        ),
        (["sample", "molecules", "--reward", "qed<-1"], "no molecule has qed"),
        (["sample", "molecules", "--strength", "2"], "none is given; add --reward"),
        (["sample", "molecules", "--steps", "2"], "reveals one piece a step"),
        (["sample", "mnist", "--reward", "qed"], "--reward is an option of molecules"),
        (["sample", "molecules", "--structure", "x.pdb"], "--structure is an option of proteinmpnn"),
        (["steer", "mnist", "--reward", "a.py:b", "--fix", "C"], "leave out --fix"),
    ],
)
def test_commands_that_make_no_sense(words, said, tmp_path):
    told = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert told.exit_code != 0
    assert said in " ".join(told.output.split())


def test_the_embedded_networks_are_small_and_say_what_they_are():
    folder = embedded("molecules")
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 8 * 2**20
    card = read_card(folder / "net")
    assert (card["weights"], card["notation"]) == ("int8", "smiles")
    was, now = (card["eight_bits"][name] for name in ("bound_per_token_trained", "bound_per_token"))
    assert abs(now / was - 1) < 0.005
    assert PropertyBins(read_card(folder / "potential")["bins"]).first("logp") == 22
    assert card["chemistry"]["fcd_test"] < 1.5


@pytest.fixture
def drawn(tmp_path):
    pytest.importorskip("rdkit")
    return tt.load("molecules", folder=write_tiny(tmp_path))


@needs_rdkit
def test_smiles_come_out_and_what_is_no_molecule_is_forbidden(drawn):
    assert drawn.decode(torch.tensor([[2, C, C], [3, END, C]])) == ["CCN", "O"]
    assert drawn.decode([3, 2, END]) == "NO"
    assert drawn.decode(drawn.rows(["NCC"])) == ["CCN"]
    reward = drawn.reward(lambda mol: mol.GetNumAtoms())
    assert reward(torch.tensor([[C, C, END], [END, C, C]])).tolist() == [2.0, -math.inf]
    for smiles, words in (("CBr", "no pieces for"), ("C(", "no molecule to RDKit"), ("CCCC", "4 pieces")):
        with pytest.raises(tt.InvalidInput, match=words):
            drawn.rows([smiles])


@needs_rdkit
def test_a_reward_that_raises_names_the_molecule(drawn):
    def fails(mol):
        raise ValueError("too many atoms")

    with pytest.raises(tt.InvalidInput, match=r"no value for 'CCN'.*too many atoms"):
        drawn.reward(fails)(torch.tensor([[2, C, C]]))


@needs_rdkit
@pytest.mark.parametrize("fragment", ["c1ccccc", "", 3, "*", "C[N+](C)C", "CC.O", "CCCCCC"])
def test_fragments_that_cannot_be_kept(drawn, fragment):
    with pytest.raises(tt.InvalidInput, match="fragment"):
        drawn.fix(fragment)


@needs_rdkit
def test_a_fragment_is_kept_and_molecules_without_it_are_forbidden(drawn):
    kept = drawn.fix("*N")
    assert kept.given == (None, 2, END)
    x = torch.tensor([[C], [3], [END]])
    assert kept.decode(x) == ["CN", "NO", ""]
    assert kept.reward()(x).tolist() == [0.0, 0.0, -math.inf]
    assert kept.view.smiles(x[0].numpy()) == "CN"
    assert kept.view.picture(x[[0, 0, 1]].numpy(), torch.ones(3).numpy() / 3).count("<img") == 2
    with pytest.raises(tt.InvalidInput, match="kept already"):
        kept.fix("C")
    assert drawn.fix("N").reward()(torch.tensor([[END, C]])).tolist() == [-math.inf]


@needs_rdkit
def test_rewards_say_what_chemists_mean():
    from truetilt.molecules.rewards import Contains, Lacks, SimilarTo, easy_to_make

    aspirin, ring = (chemistry.parsed(text) for text in ("CC(=O)Oc1ccccc1C(=O)O", "c1ccccc1"))
    assert qed(aspirin) == pytest.approx(0.5501, abs=1e-3)
    assert logp_near(1.31)(aspirin) == pytest.approx(0, abs=1e-3)
    assert easy_to_make(aspirin) == pytest.approx(-1.58, abs=0.01)
    assert SimilarTo("c1ccccc1")(ring) == 1 > SimilarTo("c1ccccc1")(aspirin)
    assert (Contains("C(=O)[OH]")(aspirin), Lacks("C(=O)[OH]")(aspirin)) == (0.0, -math.inf)
    assert together((qed, 2.0), Lacks("N"))(aspirin) == pytest.approx(2 * qed(aspirin))
    assert together(qed, Contains("N"))(aspirin) == -math.inf
    assert within("qed", 0.9)(aspirin) == -math.inf
    for wrong in (lambda: SimilarTo("c1ccccc"), lambda: Contains("C(("), lambda: logp_near(2, 0)):
        with pytest.raises(tt.InvalidInput):
            wrong()


@needs_rdkit
def test_commands_write_tables_and_drawn_molecules(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("truetilt.molecules.bundle.embedded", lambda name: tmp_path)
    (tmp_path / "mine.py").write_text("def score(mol):\n    return mol.GetNumAtoms()\n")
    for words in (["sample", "molecules", "--reward", "5*qed"], ["steer", "molecules", "--evaluations", "300"]):
        out = tmp_path / words[0]
        more = ["--reward", f"{tmp_path}/mine.py:score"] if words[0] == "steer" else ["--particles", "40"]
        told = CliRunner().invoke(app, [*words, *more, "--out", str(out), "--json"])
        assert told.exit_code == 0, told.output
        assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
        assert "data:image/svg+xml;base64," in (out / "report.html").read_text()
        assert (out / "samples.smi").read_text().split()
        report = (out / "report.html").read_text()
        assert "r = " in report
        assert "<svg" in (out / "sheet.svg").read_text()
        assert (out / "molecules.csv").read_text().startswith("smiles,weight,count")
        assert json.loads(told.stdout)["sheet"] == "sheet.svg"
    table = (tmp_path / "sample" / "molecules.csv").read_text().splitlines()
    assert table[0] == "smiles,weight,count,valid,reward,qed,logp"
    rows = [line.split(",") for line in table[1:]]
    assert sum(float(row[1]) for row in rows) == pytest.approx(1)
    assert sum(int(row[2]) for row in rows) == 160
    assert len({row[0] for row in rows}) == len(rows)
    assert "<svg" in (tmp_path / "sample" / "sheet.svg").read_text()


@needs_rdkit
def test_steering_by_a_named_property_takes_the_potential_as_twist(drawn, tmp_path, monkeypatch):
    """`truetilt steer --reward qed` learns no twist: the potential is given, for few pieces, and the story says so."""
    monkeypatch.setattr("truetilt.molecules.bundle.embedded", lambda name: tmp_path)
    words = ["steer", "molecules", "--reward", "5*qed", "--evaluations", "2000", "--route", "twisted", "--json"]
    told = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    assert "the twist is given: the potential of QED and logP" in str(json.loads(told.stdout)["story"])
    reward = drawn.reward(qed)
    kept = drawn.fix("N*")
    for nets in (drawn, kept):
        twist = nets.twist(qed, 1.0, nets.reward(qed))
        assert (twist.candidates, twist.told) == (8, "the potential of QED and logP")
    assert molecule_twist(drawn, drawn.reward(lambda mol: 1.0), 1.0) is None
    assert molecule_twist(drawn, drawn.reward(), 1.0) is None
    assert molecule_twist(drawn, reward, 2.0) is not None


def test_a_view_keeps_the_rewards_it_shows(nets):
    view = replace(nets.view, rewards=(("CN", 1.25),))
    assert view_of(json.loads(json.dumps(view.described()))) == view
    assert "rewards" not in nets.view.described()
