"""A bundle by one command: texts prepared, nets trained in turn within a time limit, gone on with, exported in int8."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import truetilt as tt
from truetilt.models.pretrained import read_card
from truetilt.models.text_classifier import TextClassifier, TextClassifierConfig
from truetilt.training import bundle
from truetilt.training.bundle import main, read_bundle_plan
from truetilt.training.config import read_config
from truetilt.training.recipe import read_recipe
from truetilt.training.text_tasks import _narrowed

CONFIGS = Path(__file__).parents[1] / "configs"
NET = {"vocabulary": 300, "length": 24, "hidden": 32, "blocks": 1, "heads": 2, "condition": 32}
SEDD = NET | {"classes": 5, "positions": True}
COMMON = {"modality": "text", "batch": 8, "warmup": 1, "log_every": 2, "checkpoint_every": 4, "export_dtype": "int8"}
STAGES = {
    "base": {"task": "conditional", "net": SEDD, "steps": 9, "label_dropout": 0.3, "export_dtype": "float32"},
    "sedd": {"task": "conditional", "net": SEDD, "steps": 3, "label_dropout": 0.3},
    "deft": {"task": "deft", "net": SEDD | {"hidden": 16, "heads": 1, "scale_by_sigma": False}, "steps": 2},
    "potential": {"task": "potential", "net": NET | {"hidden": 16, "heads": 1, "groups": [2, 2]}, "steps": 2},
    "judge": {"task": "classifier", "net": NET | {"hidden": 16, "heads": 1, "groups": [2, 2]}, "steps": 2},
}
BASES = {"sedd": "base", "deft": "sedd", "potential": "sedd"}


@pytest.fixture
def desk(tmp_path):
    """A plan with five small configurations, and a few labelled texts."""
    films = [f"{k % 2},film {k} was a {'good' if k % 2 else 'bad'} film. it had {k} hours. we left." for k in range(80)]
    notes = [f"{k % 2},note {k} is {'rude' if k % 2 else 'calm'} and says so." for k in range(80)]
    for name, lines in (("films", films), ("notes", notes)):
        texts = "".join(f"{line.split(',')[0]}\t{line.split(',')[1]}\n" for line in lines)
        (tmp_path / f"{name}.tsv").write_text(texts)
    sources = {"films": {"path": "films.tsv", "group": "mood", "test_share": 0.2, "label_at": "ends", "middles": True},
               "notes": {"path": "notes.tsv", "group": "tone", "test_share": 0.2}}  # fmt: skip
    groups = {"mood": ["low", "high"], "tone": ["calm", "rude"]}
    recipe = {"length": 24, "vocabulary": 300, "groups": groups, "kinds": {"tone": "note"}, "sources": sources}
    plan = {"corpus": "recipe.json", "bundle": ["sedd", "deft", "potential", "judge"], "most_mib": 1}
    plan["stages"] = {name: {"config": f"{name}.json", "base": BASES.get(name, "")} for name in STAGES}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for name, changes in STAGES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(COMMON | changes))
    return tmp_path


def called(desk, capsys, *more):
    arguments = [str(desk / "plan.json"), "--data", str(desk), "--out", str(desk / "out"), *map(str, more)]
    code = main(arguments)
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


def test_one_command_makes_a_bundle_and_goes_on_where_it_stopped(desk, capsys, monkeypatch):
    monkeypatch.setattr(bundle, "MARGIN", 0.0)
    real = bundle.read_plan

    def hurried(file, changes):  # the limit comes after a step or two of the first stage
        changes = changes | ({"max_seconds": 1e-9} if file.stem == "base" and "max_seconds" in changes else {})
        return real(file, changes)

    monkeypatch.setattr(bundle, "read_plan", hurried)
    code, said = called(desk, capsys, "--limit", 3600)
    assert (code, said["done"], said["stage"]) == (0, False, "base")
    assert read_card(desk / "out/base/model")["steps"] == 1
    began = (desk / "out/corpus/corpus.json").stat().st_mtime_ns
    assert called(desk, capsys, "--limit", -1)[1]["stage"] == "base"  # no time, nothing done
    code, said = called(desk, capsys)
    assert (code, said["done"]) == (0, True)
    assert read_card(desk / "out/base/model")["steps"] == 9
    assert (desk / "out/corpus/corpus.json").stat().st_mtime_ns == began  # the texts were not prepared again
    again = called(desk, capsys)[1]
    assert again == said
    nets = tt.load(said["bundle"])
    assert nets.classes == ("low", "high", "calm", "rude", "note")
    assert set(nets.nets) == {"sedd", "deft", "potential", "judge"}
    result = tt.sample(nets.model("high"), alpha=2.0, particles=4, num_inference_steps=4)
    assert len(nets.decode(result.draw(3))) == 3
    stored = load_file(Path(said["bundle"]) / "sedd/model.safetensors")
    assert stored["vocab_embed.embedding"].dtype == torch.int8
    card = read_card(Path(said["bundle"]) / "sedd")
    assert card["weights"] == "int8"
    assert card["metrics"]["bound"] == pytest.approx(card["metrics_in_float32"]["bound"], rel=0.005)
    assert "metrics_in_float32" not in read_card(desk / "out/base/model")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bundle": ["sedd", "critic"]}, "critic"),
        ({"bundle": []}, "nothing"),
        ({"stages": {"sedd": {"config": "sedd.json", "base": "base"}}}, "no stage before it"),
        ({"stages": {"sedd": {"config": "sedd.json", "seconds": -1}}}, "seconds is -1"),
        ({"stages": []}, "is no plan"),
        ({"stages": {"sedd": {"colour": 1}}}, "unknown keys: colour"),
        ({"bundle": 3}, "a list of stages"),
        ({"speed": 3}, "unknown keys: speed"),
    ],
)
def test_a_wrong_plan_is_refused(desk, capsys, changes, words):
    plan = json.loads((desk / "plan.json").read_text())
    (desk / "plan.json").write_text(json.dumps(plan | changes))
    code, said = called(desk, capsys)
    assert code == 2
    assert words in said
    assert not (desk / "out").exists()


def test_a_bundle_that_is_too_large_is_refused(desk, capsys):
    plan = json.loads((desk / "plan.json").read_text())
    (desk / "plan.json").write_text(json.dumps(plan | {"most_mib": 0.01}))
    code, said = called(desk, capsys)
    assert code == 2
    assert "make its nets smaller" in said


def test_narrowed_vectors_keep_distances_best():
    vectors = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) @ torch.randn(
        3, 12, generator=torch.Generator().manual_seed(1)
    )
    found = _narrowed(vectors, 3)  # of rank 3: nothing is lost
    assert torch.allclose(found @ found.T, vectors @ vectors.T, atol=1e-4)
    assert _narrowed(vectors, 12) is vectors
    with pytest.raises(tt.InvalidInput, match="the base has hidden 12, the network 13"):
        _narrowed(vectors, 13)


def test_the_committed_plan_is_whole_and_fits():
    """Eight bits a weight: within 30 MiB for the net, and within 64 with the other embedded nets."""
    plan = read_bundle_plan(CONFIGS / "reviews/plan.yaml")
    recipe, size = read_recipe(CONFIGS / "reviews" / plan.corpus), {}
    for name, stage in plan.stages.items():
        config = read_config(CONFIGS / "reviews" / stage.config)
        sizes = {key: tuple(v) if isinstance(v, list) else v for key, v in config.net.items()}
        judges = name in ("potential", "judge")
        made = TextClassifier(TextClassifierConfig(**sizes), None) if judges else tt.SEDD(tt.SEDDConfig(**sizes), None)
        assert sizes["vocabulary"] == recipe.vocabulary
        assert config.export_dtype == ("int8" if name in plan.bundle else "float32")
        size[name] = sum(parameter.numel() for parameter in made.parameters())
    assert 25e6 < size["sedd"] < 30 * 2**20
    assert sum(size[name] for name in plan.bundle) * 1.02 < plan.most_mib * 2**20
