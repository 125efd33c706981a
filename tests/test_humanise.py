"""`truetilt humanise` and its experiment, with a tiny network and a numberer that counts: files in, files out."""

import gzip
import json

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from antibody_nets import write_antiberty
from truetilt.antibodies.numbering import HEAVY, VariableDomain
from truetilt.antibodies.redesign import load_antiberty
from truetilt.cli.main import app
from truetilt.commands import humanise as command
from truetilt.commands.antibody_designs import DesignPlan
from truetilt.commands.job_runner import Settings, run_experiment
from truetilt.core.fasta import read_fasta
from truetilt.metrics.oasis import human_peptides, identity, oasis_content
from truetilt.paper import humanise as experiment
from truetilt.paper.humanise_designs import (
    METHODS,
    DesignSetting,
    ParentChain,
    RunSize,
    cell_named,
    chains_of_json,
    chains_to_json,
    one_chain,
)
from truetilt.paper.humanise_front import FrontPoint, at_identity, beside_front, front_of
from truetilt.paper.humanise_samplers import BASELINES, one_baseline

POSITIONS = (*range(20, 40), *range(60, 66), *range(90, 105))  # 41 residues with three loops
CHAIN = ("QVQLKWSGPE" * 5)[: len(POSITIONS)]
DOMAIN = VariableDomain(HEAVY, "kabat", 0, POSITIONS)


def counted(sequences, scheme="kabat"):
    """A numberer that finds the same domain in every sequence."""
    return {name: DOMAIN._replace(scheme=scheme) for name in sequences}


@pytest.fixture
def folder(tmp_path):
    return write_antiberty(tmp_path / "net")


def test_designs_of_a_file(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(command, "number_domains", counted)
    (tmp_path / "in.fa").write_text(f">one VH\n{CHAIN}\n>two\n{CHAIN[::-1]}\n")
    asked = command.HumaniseRequest(str(tmp_path / "in.fa"), designs=3, particles=4, populations=2, sweeps=0, steps=5)
    passes = []
    told = []
    asked = asked._replace(readings=2)
    summary = command.humanise(
        asked, tmp_path / "out", lambda done, total: passes.append((done, total)), folder, told.append
    )
    assert passes == [(k, 12) for k in range(1, 13)]
    assert "112 passes of the network at most" in told[0]  # two chains, 8 particles: five steps and two readings
    found = read_fasta(tmp_path / "out" / "designs.fa")
    assert [row["chain"] for row in summary["rows"]] == ["one VH", "two"]
    assert found[0].name.startswith("one_VH_design_1 weight=")
    assert len({design.name.split()[0] for design in found}) == len(found)  # ids
    assert len(found) == sum(row["designs"] for row in summary["rows"])
    loops = [site for loop in DOMAIN.cdrs for site in loop]
    for design in found:
        parent = CHAIN if design.name.startswith("one") else CHAIN[::-1]
        assert [design.letters[site] for site in loops] == [parent[site] for site in loops]
    assert len({design.letters for design in found if design.name.startswith("one")}) == summary["rows"][0]["designs"]
    for name in ("result.json", "figure.png", "chain-1/particles.json", "chain-2/particles.json"):
        assert (tmp_path / "out" / name).is_file()
    assert summary["verdict"][0].startswith(f"one VH: {tt.Result.load(summary['saved_runs'][0]).trust().lines[0]}")
    with pytest.raises(tt.InvalidInput, match="one of the folders in it that do: chain-1, chain-2"):
        tt.Result.load(tmp_path / "out")


def test_fewer_designs_than_asked_for_are_told():
    rows = [{"chain": "a", "designs": 3}, {"chain": "b", "designs": 8}]
    assert command._fewer(rows, 8) == ["fewer than 8 distinct designs (a: 3); more particles or populations find more"]
    assert command._fewer(rows, 3) == []


def test_half_precision_draws_designs_and_the_heads_stay_in_float32(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(command, "number_domains", counted)
    (tmp_path / "in.fa").write_text(f">one\n{CHAIN}\n")
    asked = command.HumaniseRequest(
        str(tmp_path / "in.fa"), designs=2, particles=2, populations=2, sweeps=0, steps=5, dtype="bfloat16"
    )
    assert command.humanise(asked, tmp_path / "out", lambda *_: None, folder)["rows"][0]["designs"] > 0
    full, half = (load_antiberty(dtype=dtype, folder=folder).log_species([CHAIN]) for dtype in (None, torch.bfloat16))
    assert half.dtype == full.dtype == torch.float64
    assert not torch.equal(full, half)
    assert torch.allclose(full, half, atol=0.05)


def test_residues_beside_the_domain_are_left_out_and_said(tmp_path, folder, monkeypatch):
    """A leader and a constant domain that the network reads along make other, worse designs."""

    def inside(sequences, scheme="kabat"):
        return {name: DOMAIN._replace(start=letters.find(CHAIN)) for name, letters in sequences.items()}

    monkeypatch.setattr(command, "number_domains", inside)
    for name, text in (("alone", CHAIN), ("whole", f"MGWSC{CHAIN}ASTKG")):
        (tmp_path / f"{name}.fa").write_text(f">one\n{text}\n")
        asked = command.HumaniseRequest(
            str(tmp_path / f"{name}.fa"), designs=3, particles=4, populations=2, sweeps=0, steps=5
        )
        summary = command.humanise(asked, tmp_path / name, lambda *_: None, folder)
    assert read_fasta(tmp_path / "alone" / "designs.fa") == read_fasta(tmp_path / "whole" / "designs.fa")
    assert "one: residues 6 to 46 are its heavy variable domain" in summary["notes"][0]
    assert "the other 10 are left out" in summary["notes"][0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (">a\nACGTACGTACGT\n", [], "translate it first"),
        (">a\nQVQXLK\n", [], "residue 4"),
        (">a\nQVQLK\n>a\nQVQLK\n", [], "two sequences called 'a'"),
        (">a b\nQVQLK\n>a_b\nQVQLK\n", [], "two sequences called 'a b'"),
        (f">a\n{CHAIN}\n", ["--species", "martian"], "camel, human"),
        (f">a\n{CHAIN}\n", ["--unseen", "4"], "--unseen is '4'"),
        (f">a\n{CHAIN}\n", ["--unseen", "x"], "--unseen is 'x'"),
    ],
)
def test_bad_input_is_one_line_before_any_work(tmp_path, text, options, words):
    (tmp_path / "x.fa").write_text(text)
    done = CliRunner().invoke(app, ["humanise", str(tmp_path / "x.fa"), "--out", str(tmp_path / "o"), *options])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    done = CliRunner().invoke(app, ["humanise", str(tmp_path / "no.fa")])
    assert done.exit_code == 2
    assert "there is no file" in done.stderr
    assert "no.fa; give the path of a FASTA file" in done.stderr.replace("\n", " ")
    assert "Errno" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_several_sites_a_step_and_sweeps_of_annealing(folder):
    redesign = load_antiberty(batch=8, folder=folder).redesign(CHAIN, unseen_cdrs=(1, 2), domain=DOMAIN)
    sites = len(redesign.open_sites)
    assert len(DesignPlan(2.0, 1.0, 1.0, 0, 5).of(redesign)[1]) == 6
    assert len(DesignPlan(2.0, 1.0, 1.0).of(redesign)[1]) == sites + 1
    fk, grid = DesignPlan(2.0, 1.0, 1.5, 1, 4).of(redesign)
    assert len(grid) == 4 + sites + 1
    result = tt.run(fk, grid, particles=4, populations=2, seed=0)
    assert len(redesign.spell(result.draw(4))[0]) == len(CHAIN)
    assert result.settings["measured"]["moving"]


@pytest.mark.parametrize(("readings", "passes"), [(0, 1), (1, 1), (4, 4)])
def test_a_run_costs_a_pass_a_step(folder, readings, passes):
    """The head is asked about the states that the next site is drawn for, in one pass; at the end a pass a reading."""
    nets = load_antiberty(batch=8, folder=folder)
    plan = DesignPlan(2.0, 1.0, 1.0, 0, 6, readings)
    fk, grid = plan.of(nets.redesign(CHAIN, unseen_cdrs=(1, 2), domain=DOMAIN))
    tt.run(fk, grid, particles=8, seed=0)
    assert nets.net.evaluated <= 1 + 8 * 5 + 8 * passes


@pytest.mark.parametrize(("sweeps", "readings"), [(0, 0), (1, 2)])
def test_no_run_takes_more_passes_than_it_is_told(folder, sweeps, readings):
    nets = load_antiberty(batch=8, folder=folder)
    plan = DesignPlan(2.0, 1.0, 1.0, sweeps, 6, readings)
    redesign = nets.redesign(CHAIN, unseen_cdrs=(1, 2), domain=DOMAIN)
    fk, grid = plan.of(redesign)
    asked = []
    tt.run(fk, grid, particles=8, seed=0, callback_on_step_end=lambda *_: asked.append(nets.net.evaluated))
    assert 0.3 < asked[-1] / (8 * plan.passes(len(redesign.open_sites))) <= 1


def test_how_long_it_takes_is_said():
    assert "about 10 to 33 minutes" in command.duration(100_000, 0.06)
    assert "about 33 seconds" in command.duration(1_000, 0.1)


def test_oasis_counts_words(tmp_path):
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(b"QVQLKWSGP\nVQLKWSGPE\n"))
    words = human_peptides(path)
    assert oasis_content("QVQLKWSGPEA", words) == pytest.approx(2 / 3)
    assert identity("QVQL", "QVQA") == 0.75
    with pytest.raises(tt.InvalidInput, match="4 and 3"):
        identity("QVQL", "QVQ")
    with pytest.raises(tt.InvalidInput, match="no word of 9"):
        oasis_content("QVQ", words)


def test_the_experiment_judges_designs(tmp_path, folder, monkeypatch):
    """From files of chains to the rows: designs drawn elsewhere, read from a file, beside published ones."""
    cell = DesignSetting((1, 2), 2.0, 4.0, 2.0, 0)
    assert all(cell_named(one.name) == one for one in (cell, cell._replace(readings=4)))
    monkeypatch.setattr(experiment, "peptide_file", lambda: tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("\n".join({CHAIN[k : k + 9] for k in range(len(CHAIN) - 8)}))
    data = tmp_path / "data" / "humanisation"
    data.mkdir(parents=True)
    for name in ("parental", *METHODS):
        (data / f"{name}.fa").write_text(f">A VH\n{CHAIN}\n>A VL\nQVQLKWS\n>B VH\n{CHAIN}\n")
    chains = chains_of_json(
        json.loads(json.dumps(chains_to_json((ParentChain("A", CHAIN, DOMAIN), ParentChain("B", CHAIN, DOMAIN)))))
    )
    nets = load_antiberty(batch=8, folder=folder)
    lines = [one_chain(chain, cell, RunSize(2, 4, 5), 0, nets) for chain in chains]
    for method, evaluations in (("importance", 100), ("particle-gibbs", 10)):
        asked = (chains[0], cell._replace(method=method), RunSize(2, 4, 5), 0, nets, evaluations)
        lines.append(one_baseline(*asked))
    (tmp_path / "designs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    more = (("designs", str(tmp_path / "designs.jsonl")),)
    result = run_experiment(
        experiment.EXPERIMENT, Settings(True, data=str(tmp_path / "data"), more=more), tmp_path / "out", lambda: None
    )
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["parental"]["oasis"] == rows["sapiens1"]["oasis"] == 1
    assert rows["truetilt"]["chains"] == 2
    assert rows["truetilt"]["oasis"] < 1
    assert rows["truetilt"]["paired"] < 0
    assert rows["truetilt"]["pairs"] == 2
    assert rows["truetilt"]["incomplete"]  # two chains of 25
    assert rows["truetilt"]["reward_calls"] == 8
    assert rows["importance"]["network_evaluations"] <= 200
    assert rows["importance"]["budget"] == [100, 100]
    assert rows["particle-gibbs"]["chains"] == 0
    assert "its smallest run takes 672" in rows["particle-gibbs"]["reason"]
    assert (tmp_path / "out" / "figure.png").is_file()
    (data / "humab.fa").unlink()
    with pytest.raises(tt.InvalidInput, match=r"no humab\.fa"):
        experiment.jobs(Settings(True, data=str(tmp_path / "data")))


def test_a_job_draws_ours_and_then_baselines_at_what_ours_spent(folder, monkeypatch):
    cell = DesignSetting((1, 2), 2.0, 4.0, 2.0, 0)
    monkeypatch.setattr(experiment, "parents", lambda _: (ParentChain("A", CHAIN, DOMAIN),))
    monkeypatch.setattr(experiment, "network", lambda *_: load_antiberty(batch=8, folder=folder))
    cells = (cell, cell._replace(method="importance"))
    found = experiment.one_job("A", cells, True, 0, "cpu", "", None)
    ours, other = (found[one.name] for one in cells)
    assert ours["designs"]
    assert other["budget"] == [ours["network_evaluations"]] * 2  # a call is a pass of the head


def test_every_baseline_stands_beside_the_first_target(tmp_path):
    settings = Settings(False, data=str(tmp_path))
    for name in ("parental", *METHODS):
        (tmp_path / f"{name}.fa").write_text(f">A VH\n{CHAIN}\n")
    first, *others = [job.arguments[1] for job in experiment.jobs(settings)]
    assert [cell.method for cell in first] == ["truetilt", *BASELINES]
    assert {cell.name for cell in first} == {first[0]._replace(method=cell.method).name for cell in first}
    assert all(len(cells) == 1 for cells in others)


def test_where_designs_lie_beside_the_front():
    """Between two methods the front is their mixture, chain by chain; a chain that one of them lacks is no pair."""
    published = {
        "parental": {name: {"identity": 1.0, "oasis": 0.5} for name in "ABCD"},
        "graft": {"A": {"identity": 0.8, "oasis": 0.8}, "B": {"identity": 0.8, "oasis": 0.7}},
        "worse": {name: {"identity": 0.79, "oasis": 0.6} for name in "ABCD"},
    }
    mine = {name: {"identity": 0.9, "oasis": oasis} for name, oasis in (("A", 0.7), ("B", 0.5), ("C", 0.6))}
    found = beside_front(published, mine)
    assert found["beside"] == ["graft", "parental"]
    assert found["above"] == pytest.approx(0.6 - (0.75 + 0.5) / 2)
    assert found["pairs"] == 2
    assert found["paired"] == pytest.approx((0.05 - 0.1) / 2)  # .7 - .65 and .5 - .6
    assert found["paired_median"] == pytest.approx(-0.025)
    assert found["paired_half_width"] == pytest.approx(12.7062 * 0.075, rel=1e-4)  # Student's, one degree of freedom
    low = {"A": {"identity": 0.7, "oasis": 0.7}}
    assert beside_front(published, low)["above"] == pytest.approx(-0.1)
    assert beside_front({"graft": published["graft"]}, {"A": {"identity": 0.9, "oasis": 0.7}})["above"] is None


def test_the_front_leaves_out_what_is_beaten_at_both():
    points = [FrontPoint(0.8, 0.77, "a"), FrontPoint(0.9, 0.72, "b"), FrontPoint(0.79, 0.76, "c"), FrontPoint(1.0, 0.5)]
    assert [point.method for point in front_of(points)] == ["a", "b", ""]
    assert at_identity(front_of(points), 0.85).oasis == pytest.approx(0.745)
