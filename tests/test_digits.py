"""The digit experiments from end to end on tiny nets of random weights: 4 x 4 pixels, 4 grey levels, ten classes."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from truetilt.cli.main import app
from truetilt.commands import real_digits
from truetilt.commands import sample as own_digits
from truetilt.commands.costs import StateCounter
from truetilt.commands.job_runner import Settings, run_experiment
from truetilt.core.errors import InvalidInput
from truetilt.core.logits import SiteLogits
from truetilt.core.types import Particles
from truetilt.metrics.images import mean_distance
from truetilt.models.classifier import Classifier, ClassifierConfig
from truetilt.models.conditions import (
    PerConditionDeft,
    PerConditionPotential,
    PerConditionScore,
    SeparateNets,
    per_condition,
)
from truetilt.models.hub import Digits
from truetilt.models.unet import UNet, UNetConfig
from truetilt.paper import digit_rows, digit_samplers, figure3, figure4
from truetilt.paper.digit_samplers import DIGIT_SAMPLERS, DigitRun, SeveralSites, sample_digits, shape_of
from truetilt.paper.populations import counted_equally, part_of
from truetilt.smc.sampler import Source, Stream, run_steps
from truetilt.targets.consistency import STATES
from truetilt.targets.stage import nothing_known

SMALL = {"side": 4, "vocabulary": 4, "classes": 10, "channels": (8, 8), "blocks": 1, "embedding": 8, "condition": 8}
KEYS = {
    "method", "condition", "alpha", "particles", "populations", "accuracy", "accuracy_std", "diversity_ratio",
    "coverage", "roots", "network_evaluations", "seconds", "ess",
}  # fmt: skip


def shaken(net, seed):
    """A net whose last layers, zero at the start, say something."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
    return net.eval()


@pytest.fixture(scope="module")
def nets():
    config = UNetConfig(**SMALL, attention=False)
    judges = ClassifierConfig(**SMALL, attention=False)
    found = {"unet": shaken(UNet(config), 1), "deft": shaken(UNet(config), 2)}
    found |= {"potential": shaken(Classifier(judges), 3), "judge": shaken(Classifier(judges), 4)}
    return Digits(found, tt.Masking(4), batch=16)


@pytest.fixture
def tiny(nets, monkeypatch):
    """The experiments with these nets, few steps and made-up figures of real digits."""
    monkeypatch.setattr(digit_rows, "bundle", lambda device: nets)
    monkeypatch.setattr(digit_rows, "in_full_precision", lambda device: nets)
    monkeypatch.setattr(digit_rows, "reference", lambda: {c: {"test": {"distance": 1.0}} for c in range(10)})
    for module in (figure3, figure4):
        monkeypatch.setattr(module, "QUICK_STEPS", 3)
        monkeypatch.setattr(module, "STEPS", 3)
    monkeypatch.setitem(DIGIT_SAMPLERS, "guidance-gibbs", replace(DIGIT_SAMPLERS["guidance-gibbs"], moves=2))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # jobs run here, where the nets are
    return nets


@pytest.fixture
def real(monkeypatch):
    """Real digits, as if the user had named a folder."""
    x = torch.randint(4, (20, 16), generator=torch.Generator().manual_seed(9))
    monkeypatch.setattr(digit_rows, "real_digits", lambda settings, condition: x if settings.data else None)


@pytest.mark.parametrize(
    ("form", "kind"),
    [("cfg", PerConditionScore), ("deft", PerConditionDeft), ("potential", PerConditionScore)],
    ids=str,
)
def test_dealt_populations_get_the_answers_of_their_own_condition(nets, form, kind):
    models = [nets.model(c, form) for c in (4, 8, 9)]
    together = per_condition(models)
    assert isinstance(together.conditional, kind)
    assert together.base is models[0].base
    u = torch.rand(6, 5, 16, generator=torch.Generator().manual_seed(0))
    x = nets.process.corrupt((u * 4).long(), 0.5, u)
    torch.testing.assert_close(
        together.conditional(x, 0.5).dense()[x == 4],
        torch.cat([model.conditional(x[2 * k : 2 * k + 2], 0.5).dense() for k, model in enumerate(models)])[x == 4],
    )
    if form == "potential":
        assert isinstance(together.potential, PerConditionPotential)
        alone = [model.potential(x[2 * k : 2 * k + 2], 0.5) for k, model in enumerate(models)]
        torch.testing.assert_close(together.potential(x, 0.5), torch.cat(alone))


def test_wrong_deal_of_the_labels_is_seen(nets):
    x = torch.full((4, 1, 16), 4)
    right, wrong = (
        per_condition([nets.model(c, "cfg") for c in order]).conditional(x, 1.0) for order in ((4, 8), (8, 4))
    )
    assert (right.dense() - wrong.dense()).abs().max() > 0.01


def test_scores_of_another_kind_are_asked_in_turn():
    def answers(value):
        return lambda x, t: SiteLogits.of(torch.full((*x.shape, 4), value))

    models = [tt.Model(tt.Masking(4), 16, answers(0.0), answers(float(k))) for k in range(2)]
    together = per_condition(models)
    assert isinstance(together.conditional, SeparateNets)
    x = torch.zeros(4, 3, 16, dtype=torch.int64)
    assert together.conditional(x, 0.5).dense()[:, 0, 0, 0].tolist() == [0, 0, 1, 1]
    with pytest.raises(InvalidInput, match="cannot be divided equally among 2"):
        together.conditional(x[:3], 0.5)


def test_deft_asks_its_base_once_a_step(nets, monkeypatch):
    asked = []
    forward = UNet.forward
    monkeypatch.setattr(UNet, "forward", lambda net, *inputs: asked.append(net) or forward(net, *inputs))
    sample_digits(nets, DIGIT_SAMPLERS["smc-deft"], 2.0, DigitRun((4, 9), (1, 3), 4, seed=3))
    assert asked.count(nets.nets["unet"]) == asked.count(nets.nets["deft"]) == 4


def test_a_watched_model_is_counted_by_its_run_too(nets):
    """Potential and score alike: what a command counts for its table takes nothing from the result."""
    counts = [
        tt.run(tt.Tilted(model, 2.0), tt.uniform_grid(3), particles=2).counts
        for model in (nets.model(1), StateCounter().watch(nets.model(1)))
    ]
    assert torch.equal(*counts)
    assert int(counts[0][:, 1].sum()) == 3 * 2 * 2


@pytest.mark.parametrize("method", DIGIT_SAMPLERS)
def test_every_sampler_runs_and_counts_its_networks(nets, method, monkeypatch):
    monkeypatch.setitem(digit_samplers.AT_ONCE, "cpu", 8)  # chunks change no count
    sampler = DIGIT_SAMPLERS[method]
    shape = shape_of(sampler, 8)
    result, cost = sample_digits(nets, sampler, 2.0, DigitRun((4, 9), shape, 4, seed=3))
    assert result.particles.shape == (2 * shape[0], shape[1], 16)
    assert int(result.particles.max()) < 4
    if sampler.annealing is not None:  # a site a step, a move a share, and three rounds that look for disagreement
        checked = 3 * len(result.particles) * max(1, STATES // len(result.particles)) / result.log_weights.numel()
        assert (cost.networks, cost.potentials) == (
            16 + sampler.annealing.shares + checked,
            1 + sampler.annealing.shares,
        )
        return
    evaluations = 4 if method in ("guidance", "guidance-deft") or "tilted" in method else 8
    assert cost.networks == evaluations + 2 * sampler.moves
    full = method == "tilted-full-exponent"  # which weighs the first state too
    assert cost.potentials == (4 + full if "tilted" in method else 0)


def test_classes_that_share_an_annealed_run_are_looked_at_equally(nets):
    """32 states cannot be dealt to three classes: some of every population can."""
    result, _ = sample_digits(nets, DIGIT_SAMPLERS["annealed"], 3.0, DigitRun((4, 8, 9), (1, 16), 4, seed=5))
    assert result.particles.shape == (3, 16, 16)


def test_a_class_comes_out_the_same_alone_and_beside_others(nets):
    plan = DigitRun((4, 8, 9), (2, 4), 4, seed=5)
    every = sample_digits(nets, DIGIT_SAMPLERS["tilted"], 3.0, plan).result
    alone = sample_digits(
        nets, DIGIT_SAMPLERS["tilted"], 3.0, plan._replace(conditions=(8,), first_population=2)
    ).result
    own = part_of(every, 2, 2)
    assert torch.equal(own.particles, alone.particles)
    torch.testing.assert_close(own.log_weights, alone.log_weights)
    assert torch.equal(own.roots, alone.roots)


def test_redrawing_one_site_is_a_gibbs_move(nets):
    fk = tt.AnyOrder(nets.model(4, "cfg"), 3.0)
    x = torch.randint(4, (1, 6, 16), generator=torch.Generator().manual_seed(2))
    zeros = torch.zeros(1, 6, dtype=torch.float64)
    particles = Particles(x, zeros, nothing_known(x, 1))
    u = torch.rand(1, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    move = SeveralSites(fk, 1).move(particles, 0.0, 0, u)
    gibbs = tt.Gibbs(fk).at(particles, 0.0, u.argmin(-1, keepdim=True))
    draw = torch.rand(1, 6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    y = move.law.sample(draw)
    assert torch.equal(y, gibbs.law.sample(draw))
    torch.testing.assert_close(move.after(y)[1]["log_ratios"], gibbs.after(y)[1]["log_ratios"])
    several = SeveralSites(fk, 5).move(particles, 0.0, 0, u)
    assert int((several.law.sample(draw.expand(1, 6, 5)) != x).sum(-1).max()) <= 5


def test_populations_are_counted_equally(nets):
    result = sample_digits(nets, DIGIT_SAMPLERS["smc"], 3.0, DigitRun((4,), (3, 4), 4, seed=0)).result
    mass = counted_equally(result).weights.sum(-1)
    torch.testing.assert_close(mass, torch.full_like(mass, 1 / 3))


def test_pictures_survive_packing(nets):
    x = torch.randint(4, (16, 16), generator=torch.Generator().manual_seed(2))
    shown = {"levels": 4, "wrong": [False] * 16, "images": digit_rows.packed(x)}
    assert torch.equal(torch.from_numpy(digit_rows.unpacked(shown) * 3).round().long(), x)


@pytest.mark.parametrize(("quick", "data"), [(True, None), (True, "somewhere"), (False, "somewhere")])
def test_figure3_from_end_to_end(tiny, real, tmp_path, monkeypatch, quick, data):
    monkeypatch.setattr(figure3, "SAMPLES", 8)
    monkeypatch.setattr(digit_rows, "CLASSES", (3, 4))
    settings = Settings(quick=quick, data=data)
    result = run_experiment(figure3.EXPERIMENT, settings, tmp_path, lambda: None)
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    runs = figure3.QUICK_RUNS if quick else figure3.RUNS
    assert len(result["rows"]) == (4 if quick else 3) * len(runs)  # each class, and their mean
    for row in result["rows"]:
        assert row.keys() >= KEYS
        assert (row["coverage"] is None) == (data is None)
        assert 0 <= row["accuracy"] <= 1
    assert {p["condition"] for p in result["pictures"]} == ({4, 8, 9} if quick else {4})
    assert set(result["log_ratio"]) == (set() if quick else {"cfg", "cfg-one-site", "deft", "potential"})
    if not quick:
        assert result["log_ratio"]["potential"]["above_bound"] == 0
        assert result["findings"]["potential_within_bound"]


def test_figure4_from_end_to_end(tiny, real, tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "PARTICLES", (2, 3))
    monkeypatch.setattr(figure4, "SWEPT", 3)
    monkeypatch.setattr(figure4, "REPEATS", 2)
    monkeypatch.setattr(digit_rows, "CLASSES", (3, 4))
    result = run_experiment(figure4.EXPERIMENT, Settings(data="somewhere"), tmp_path, lambda: None)
    assert result["runs"] == 4
    assert len(result["rows"]) == 2 * (2 + 6 * 2) + 4 * 2 * 4
    assert all(row.keys() >= KEYS and row["runs"] == 4 and row["coverage"] is not None for row in result["rows"])
    assert result["findings"]["partial_raises_diversity_ratio"].endswith("of 4")
    assert result["findings"]["partial_raises_diversity_ratio-deft_below_0.125"].endswith("of 2")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_on_a_gpu_all_classes_share_a_job(monkeypatch):
    for module, points in ((figure3, len(figure3.RUNS) + 3), (figure4, 5 * (2 + 6 * 2) + 4 * 2 * 4)):
        assert len(module.jobs(Settings(device="cuda"))) == points
        names = [job.name for job in module.jobs(Settings(quick=True))]
        assert len(set(names)) == len(names)


def test_edge_ratios_of_paths_are_those_of_the_weights(tiny):
    """At alpha = 2 and strength 1 a path's weight is p_zeta/p: the sum over its steps, done here by hand."""
    model = tiny.model(4, "cfg")
    fk, grid = tt.Tempered(model, 2.0), tt.uniform_grid(4)
    result = tt.run(fk, grid, particles=5, seed=1, resample=tt.never)
    path = [state.x for state, _ in run_steps(fk, grid, (1, 5), tt.never, Source(Stream(1)))]
    total = torch.zeros(1, 5, dtype=torch.float64)
    for (t, s), (x, y) in zip(pairwise(grid), pairwise(path), strict=True):
        p, p_zeta = (tt.euler(model.process, net(x, t), x, t, s) for net in (model.base, model.conditional))
        total += p_zeta.log_prob(y) - p.log_prob(y)
    torch.testing.assert_close(result.log_weights, total)


def test_the_potential_stays_within_its_bound(tiny):
    x = torch.randint(4, (2, 30, 16), generator=torch.Generator().manual_seed(5))
    bound, log_ratio = figure3.potential_ratio(tiny, (4, 9), x)
    assert bool((log_ratio <= bound).all())
    here = tiny.model(9).potential(x[1], 0.0) - tiny.model(9).potential(torch.full((1, 16), 4), 1.0)
    torch.testing.assert_close(log_ratio[1], here)
    figures = figure3.ratio_figures(torch.tensor([[0.0, 1.0, 5.0, 2.0]]).double(), torch.tensor([[2.0]]))
    assert figures["above_bound"] == 0.25


def test_reference_figures_come_from_the_data(tmp_path, monkeypatch):
    from truetilt.training.data import DigitImages

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (200, 16), generator=generator, dtype=torch.uint8)
    data = DigitImages(images, torch.arange(200) % 10)
    monkeypatch.setattr("truetilt.training.data.load_digits", lambda folder, split: data)
    real_digits.main(["--data", "x", "--out", str(tmp_path / "r.json")])
    entry = json.loads((tmp_path / "r.json").read_text())["classes"][3]
    assert entry["digit"] == 3
    assert entry["test"] == {"count": 20, "distance": round(mean_distance(images[3::10].long()), 5)}
    assert entry["coverage_of_real"] == 1  # the same digits cover themselves


def test_shipped_figures_of_the_real_digits_are_there():
    found = real_digits.reference()
    assert sorted(found) == list(range(10))
    assert all(5 < entry[split]["distance"] < 12 for entry in found.values() for split in ("train", "test"))
    assert found[1]["test"]["distance"] == min(entry["test"]["distance"] for entry in found.values())


@pytest.fixture
def saved(nets, tmp_path):
    folder = tmp_path / "nets"
    for name, net in nets.nets.items():
        net.save_pretrained(folder / name)
    return folder


def test_sampling_a_class_from_the_command_line(saved, tmp_path):
    words = ["sample", saved, "--condition", 4, "--alpha", 3, "--particles", 6, "--steps", 3, "--out", tmp_path / "o"]
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["quantity"]: row["value"] for row in json.loads((tmp_path / "o/result.json").read_text())["rows"]}
    assert rows["particles"] == 6
    assert tt.Result.load(tmp_path / "o").particles.shape == (1, 6, 16)
    assert (tmp_path / "o/figure.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "say which one to sample with --condition"),
        (["--condition", "10"], "knows classes 0 to 9"),
        (["--condition", "-1"], "knows classes 0 to 9"),
        (["--condition", "4", "--steps", "0"], "steps is 0"),
        (["--condition", "4", "--particles", "0"], "populations of 0 particles"),
        (["--condition", "4", "--alpha", "-1"], "alpha is -1"),
        (["--condition", "4", "--beta", "-1"], "beta is -1"),
    ],
)
def test_bad_requests_are_named(saved, tmp_path, options, words):
    done = CliRunner().invoke(app, ["sample", str(saved), *options, "--out", str(tmp_path / "o")])
    assert done.exit_code == 2
    assert words in done.output.replace("\n", " ")
    assert not (tmp_path / "o").exists()


def test_a_table_takes_no_condition(tmp_path):
    with pytest.raises(InvalidInput, match="leave out --condition"):
        own_digits.with_defaults(tmp_path / "table.json", own_digits.SampleRequest(4, 3.0))
    table = own_digits.with_defaults(tmp_path / "table.json", own_digits.SampleRequest(None, 3.0))
    assert (table.particles, table.populations, table.steps) == (1000, 16, 100)
    mnist = own_digits.with_defaults(tmp_path, own_digits.SampleRequest(4, 3.0))
    assert (mnist.particles, mnist.populations, mnist.steps) == (4, 16, 50)
    asked = own_digits.with_defaults(tmp_path, own_digits.SampleRequest(4, 3.0, particles=30, populations=1))
    assert (asked.particles, asked.populations) == (30, 1)


@pytest.mark.parametrize(
    ("particles", "spread"), [(64, (4, 16)), (16, (4, 4)), (100, (10, 10)), (1000, (100, 10)), (7, (7, 1)), (2, (2, 1))]
)
def test_particles_are_spread_over_populations_of_four_or_more(particles, spread):
    assert own_digits.spread(particles) == spread
