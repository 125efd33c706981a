"""`truetilt reproduce gb1 | soluble` and `sample proteinmpnn`, with tiny networks and small tables."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from tiny_protein import pdb, structure, write_weights
from truetilt.cli.main import app
from truetilt.commands.job_runner import Settings
from truetilt.commands.request import Backbone, SampleRequest, TableNoise
from truetilt.commands.resume import SampleCommand, read_command, sample_or_resume
from truetilt.commands.sample import with_defaults
from truetilt.paper import gb1, gb1_samplers, soluble, soluble_samplers
from truetilt.paper.kriging import kriged
from truetilt.paper.reward_tables import RewardTable
from truetilt.proteins.surface import exposure, hydrophobic_share

NATIVE = "MKTAYIAKQR"


@pytest.fixture(scope="module")
def table():
    """Six letters at four sites, a rugged reward that is at most 0."""
    generator = torch.Generator().manual_seed(0)
    p0 = torch.rand(6, 6, 6, 6, generator=generator, dtype=torch.float64) ** 3
    values = torch.randn(6**4, generator=generator, dtype=torch.float64).clamp(max=3) - 3
    return RewardTable(p0 / p0.sum(), values)


def test_kriging_keeps_what_was_measured_and_is_not_blind_elsewhere(table):
    known = torch.cartesian_prod(*[torch.arange(6)] * 4)[::7]
    values = table.values[::7]
    guess = kriged(known, values, table.p0.reshape(-1).log(), 2.0)
    assert torch.equal(guess[::7], values)
    assert float(guess.max()) <= 0
    others = torch.ones(6**4, dtype=torch.bool)
    others[::7] = False
    assert float(guess[others].mean()) > float(values.mean())


@pytest.mark.parametrize("name", gb1_samplers.OURS)
def test_every_sampler_estimates_the_target(table, name):
    reward = gb1_samplers.bounded_reward(table)
    found = gb1_samplers.OURS[name](table, reward, 2.0, 3000, 0)
    law, log_z = table.target(2.0)
    assert table.miss(law, found.x, found.weights) < 0.25
    assert found.log_z == pytest.approx(log_z, abs=0.6)
    assert 0 < found.spent.distinct == reward.distinct
    assert found.spent.evaluations > 0


def test_the_kriged_twist_is_exact_where_everything_is_known(table):
    reward = gb1_samplers.bounded_reward(table)
    reward(torch.cartesian_prod(*[torch.arange(6)] * 4))
    found = gb1_samplers.kriged_twist(table, reward, 2.0, 5000, 1)
    law, log_z = table.target(2.0)
    assert found.log_z == pytest.approx(log_z, abs=1e-6)
    assert table.miss(law, found.x, found.weights) < 0.02


def test_a_blind_guess_is_corrected_by_weights(table, monkeypatch):
    """Weights make up for a guess that is wrong everywhere; without them the error would show."""
    monkeypatch.setattr(gb1_samplers, "kriged", lambda known, values, log_p0, strength: torch.zeros_like(log_p0) - 1)
    reward = gb1_samplers.bounded_reward(table)
    found = gb1_samplers.kriged_twist(table, reward, 2.0, 6000, 0)
    law, log_z = table.target(2.0)
    assert found.log_z == pytest.approx(log_z, abs=0.05)
    assert table.miss(law, found.x, found.weights) < 0.03
    assert table.miss(law, found.x, torch.ones_like(found.weights)) > 0.06


def row(method, alpha, seed, tv, **more):
    head = {"problem": "fitness", "method": method, "alpha": alpha, "seed": seed, "calls": 4000, "tv": tv}
    told = {"recycled": 0.02, "log_z_error": 0.1, "reward_calls": 3500, "network_evaluations": 9, "verdict": "trust"}
    return head | told | {"floor": 0.02} | more


def rows_that_pass():
    bases = ("fitness", "fitness, soluble base", "fitness, fixed base")
    rows = [
        row(method, alpha, seed, 0.04, problem=base)
        for base in bases
        for method in gb1.RIVALRY
        for alpha in (4.0, 8.0)
        for seed in range(5)
    ]
    return rows + [row("any order, 16 × 128", alpha, seed, 0.025) for alpha in (1.0, 2.0) for seed in range(5)]


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        (row("kriged twist", 4.0, 0, 0.9, verdict="use with care"), "particles, alpha 4"),
        (row("kriged twist", 8.0, 0, 0.04, recycled=0.9), "recycled, alpha 8"),
        (row("kriged twist", 8.0, 0, 0.04, reward_calls=4001), "most calls, alpha 8"),
        (row("annealed, Gibbs", 8.0, 0, 0.2), "runs with TV > 0.15 called trust"),
        (
            row("tt.steer", 8.0, 0, 0.12, problem="fitness, fixed base"),
            "tt.steer over the better, fixed base, alpha 8",
        ),
        (row("any order, 16 × 128", 2.0, 0, 0.9, verdict="use with care"), "soluble / vanilla over the floor, alpha 2"),
    ],
)
def test_what_is_claimed_of_gb1_can_fail(wrong, claim):
    assert gb1.passed({"claims": gb1.claims(rows_that_pass())})
    found = gb1.claims([*rows_that_pass(), wrong])
    assert not found[claim]["holds"]
    assert not gb1.passed({"claims": found})


def test_data_that_are_not_there_are_said(tmp_path):
    with pytest.raises(tt.InvalidInput, match=r"has no backbone\.pdb"):
        gb1.jobs(Settings(data=str(tmp_path)))
    with pytest.raises(tt.InvalidInput, match="has no structures"):
        soluble.jobs(Settings(data=str(tmp_path)))


def test_the_figure_of_gb1_draws():
    rows = rows_that_pass()
    means = [
        {"problem": "fitness", "method": m, "alpha": a, "calls": c, "tv": 0.1, "recycled": r, "reward_calls": c}
        for m, r in (("kriged twist", 0.05), ("FK max", None))
        for a in (4.0, 8.0)
        for c in (500, 1000)
    ]
    means += [
        {"problem": "soluble / vanilla", "method": "guidance", "alpha": a, "tv": 0.1, "floor": 0.02} for a in (1.0, 2.0)
    ]
    assert len(gb1.EXPERIMENT.draw({"rows": rows, "means": means}).axes) == 3


def test_a_residue_inside_is_less_exposed_than_one_outside():
    made = structure(*["A" * 12] * 5)  # five helices side by side: the middle one is covered on both sides
    exposed = exposure(made).reshape(5, 12)
    assert float(exposed[2].mean()) < float(exposed[0].mean())
    assert bool((exposed >= 0).all())
    assert bool((exposed <= 1).all())
    assert hydrophobic_share(exposed.reshape(-1), made.letters) == pytest.approx(1)
    assert hydrophobic_share(exposed.reshape(-1), "K" * 60) == 0


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Tiny weights by the names of the published ones."""
    files = {name: write_weights(tmp_path / f"{name}.pt", seed) for seed, name in enumerate(("vanilla", "soluble"))}
    monkeypatch.setattr("truetilt.proteins.bundle.find_weights", lambda name, noise="020": files.get(str(name), name))
    return files


def test_whole_chains_are_judged(tiny, monkeypatch):
    soluble.protein.cache_clear()
    monkeypatch.setattr("truetilt.proteins.bundle.read_structure", lambda path: structure(NATIVE))
    found = {alpha: soluble.one("x.pdb", "truetilt", alpha, (4, 8), 0, "cpu") for alpha in (0.0, 2.0)}
    assert found[2.0]["log_ratio"] > found[0.0]["log_ratio"]
    assert found[0.0]["sites"] == len(NATIVE)
    assert 0 <= found[2.0]["surface"] <= 1
    assert json.dumps(found[2.0])
    guided = soluble.one("x.pdb", "guidance", 2.0, (1, 8), 0, "cpu")
    assert guided["verdict"] is None
    for name in ("importance", "adalead"):  # one of either kind: counted from outside, and counting for itself
        rival = soluble.one("x.pdb", name, 2.0, (4, 8), 0, "cpu")
        most = soluble_samplers.budget_of(soluble.protein("x.pdb", "cpu", 16), (4, 8))
        assert rival["network_evaluations"] <= most.evaluations
        assert 0 < rival["reward_calls"] <= most.calls
        assert max(rival["network_evaluations"] / most.evaluations, rival["reward_calls"] / most.calls) > 0.7, name
    rows = [
        {"backbone": "x", "method": "truetilt", "alpha": a, "seed": 0} | found[min(a, 2.0) // 2 * 2]
        for a in soluble.ALPHAS
    ]
    rows += [{"backbone": "x", "method": "guidance", "alpha": 2.0, "seed": 0} | guided]
    rows += [{"backbone": "x", "method": "AdaLead", "alpha": 2.0, "seed": 0} | rival]
    axes = soluble.EXPERIMENT.draw({"rows": rows}).axes
    assert len(axes) == 4
    assert axes[-1].get_legend_handles_labels()[1] == ["truetilt", "guidance", "AdaLead"]
    assert isinstance(soluble.passed({"claims": soluble.claims(rows)}), bool)


def test_designs_on_the_command_line(tiny, tmp_path):
    pytest.importorskip("gemmi")
    path = tmp_path / "x.pdb"
    path.write_text(pdb(structure(NATIVE)))
    words = ["sample", "proteinmpnn", "--structure", str(path), "--open", "3-5", "--particles", "8", "--out"]
    done = CliRunner().invoke(app, [*words, str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "run" / "designs.fasta").read_text().splitlines()
    assert len(lines) == 16
    assert all(line[:2] == NATIVE[:2] and line[5:] == NATIVE[5:] for line in lines[1::2])
    assert (tmp_path / "run" / "figure.png").stat().st_size > 1000
    report = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert report.exit_code == 0
    assert "Sequence logo" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    leaning = CliRunner().invoke(app, [*words, str(tmp_path / "two"), "--condition", "soluble", "--alpha", "2"])
    assert leaning.exit_code == 0, leaning.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["proteinmpnn"], "give it"),
        (["proteinmpnn", "--structure", "x.pdb", "--alpha", "2"], "add --condition soluble"),
        (["proteinmpnn", "--structure", "x.pdb", "--steps", "5"], "leave out --steps"),
        (["proteinmpnn", "--structure", "x.pdb", "--process", "uniform"], "leave out --process"),
        (["proteinmpnn", "--structure", "x.pdb", "--prompt", "MK"], "takes no prompt"),
        (["proteinmpnn", "--structure", "x.pdb"], "there is no file x.pdb"),
        (["mnist", "--condition", "4", "--open", "3"], "an option of proteinmpnn"),
        (["proteinmpnn", "--structure", "x.pdb", "--checkpoint-every", "2"], "there is no file x.pdb"),
    ],
)
def test_wrong_requests_on_the_command_line(words, told, tmp_path):
    done = CliRunner().invoke(app, ["sample", *words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


def test_a_stopped_design_goes_on_to_the_same_bytes(tiny, tmp_path, monkeypatch):
    """Its command is found from another folder, too; and a structure that has changed since is refused."""
    pytest.importorskip("gemmi")
    monkeypatch.chdir(tmp_path)
    path, text = tmp_path / "x.pdb", pdb(structure(NATIVE))
    path.write_text(text)
    request = with_defaults(Path("proteinmpnn"), SampleRequest(None, 1.0, particles=8))
    asked = SampleCommand("proteinmpnn", request, TableNoise(), 1, Backbone("x.pdb", "3-6"))
    sample_or_resume(asked, tmp_path / "whole", lambda done: None)
    count = iter(range(100))

    def stop(done):
        if next(count) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_or_resume(asked, tmp_path / "run", stop)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path.write_text(pdb(structure(NATIVE[:-1] + "W")))
    with pytest.raises(tt.InvalidInput, match="belongs to another run"):
        sample_or_resume(read_command(tmp_path / "run"), tmp_path / "run", lambda done: None)
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    sample_or_resume(read_command(tmp_path / "run"), tmp_path / "run", lambda done: None)
    names = sorted(one.name for one in (tmp_path / "whole").iterdir())
    assert names == sorted(one.name for one in (tmp_path / "run").iterdir())
    same = [(tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes() for name in names]
    assert dict(zip(names, same, strict=True)) == dict.fromkeys(names, True)


def test_residues_are_steered_on_the_command_line(tiny, tmp_path):
    pytest.importorskip("gemmi")
    path, file = tmp_path / "x.pdb", tmp_path / "mine.py"
    path.write_text(pdb(structure(NATIVE)))
    file.write_text("def charge(sequences):\n    return [s.count('K') - s.count('D') for s in sequences]\n")
    words = ["steer", "proteinmpnn", "--structure", str(path), "--open", "3-4", "--reward", f"{file}:charge"]
    words += ["--calls", "60", "--populations", "4", "--forbid", "C"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "run" / "designs.fasta").read_text().splitlines()
    assert all(line[:2] == NATIVE[:2] and line[4:] == NATIVE[4:] for line in lines[1::2])
    assert "designs.fasta" in done.output
    told = json.loads((tmp_path / "run" / "result.json").read_text())["settings"]["command"]
    assert "--structure" in told
    assert "--forbid C" in told
    refused = CliRunner().invoke(app, ["steer", "mnist", "--reward", "a.py:b", "--open", "3"])
    assert "an option of proteinmpnn" in " ".join(refused.output.split())


def test_leaning_to_the_weights_themselves_is_refused(tiny):
    protein = tt.load("proteinmpnn", structure=structure(NATIVE), open="3", weights="soluble")
    with pytest.raises(tt.InvalidInput, match="nothing to lean to"):
        protein.model("soluble")


def test_the_logo_of_residues_has_colours_of_their_own():
    from truetilt.viz.logo import RESIDUES, SequenceLogo

    logo = SequenceLogo("ACDEFGHIKLMNPQRSTVWY")
    x = torch.zeros(4, 3, dtype=torch.int64).numpy()
    assert RESIDUES["A"] in logo.picture(x, torch.ones(4).numpy() / 4)
    assert "style=" not in SequenceLogo("ACGT").picture(x, torch.ones(4).numpy() / 4)
