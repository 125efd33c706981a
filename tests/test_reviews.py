"""A bundle of text nets: what it loads, refuses and means; gaps are filled as the enumerated model says; commands."""

import json
import shutil
from collections import Counter
from itertools import product

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from sayings import CLASSES, LENGTH, NOTE, WORDS, V
from truetilt.cli.main import app
from truetilt.cli.shown_texts import lines_of
from truetilt.commands.sample_text import row_with_gaps, words_of
from truetilt.metrics.judges import judged
from truetilt.models.infilling import Retimed, given_text
from truetilt.models.text_bundle import Facts, Reviews

HIGH = {"x high", "y high", "x high .", "y high ."}


@pytest.fixture(scope="module")
def nets(bundle_folder):
    return tt.load(bundle_folder)


def token(word):
    return WORDS.index(word)


def test_a_folder_with_sedd_in_it_is_a_bundle_of_text(nets):
    assert isinstance(nets, Reviews)
    assert nets.classes == CLASSES
    assert nets.facts.groups == {"mood": ("low", "high"), "tone": ("calm", "rude")}
    assert (nets.length, nets.process.vocabulary) == (LENGTH, V)
    assert repr(nets).startswith("<Reviews: sedd, deft, potential, judge; 5 sites")
    assert len(repr(nets)) < 200


def test_words_go_in_and_come_out(nets):
    rows = nets.rows(["x high", "", "y low x low x low"])
    assert rows.tolist()[0] == [token("x"), token("high"), 0, 0, 0]
    assert rows[1].tolist() == [0] * LENGTH
    assert nets.decode(rows) == ["x high", "", "y low x low x"]
    assert nets.encode("X HIGH") == [token("x"), token("high")]


def test_the_base_is_told_what_a_withheld_class_leaves(nets):
    assert nets.base("rude").label == NOTE
    assert nets.base("high").label is None
    assert nets.model("rude", "cfg").conditional.label == CLASSES.index("rude")


def test_the_judge_knows_the_classes_and_its_columns(nets):
    log_p, right = nets.verdicts(["x high", "y low .", "n x rude"], "high")
    assert right.tolist()[:2] == [True, False]
    assert log_p[0] > -0.1 > -2 > log_p[1]
    everything = nets.judge(["n x rude"]).exp()
    assert everything[0, :2].sum() == pytest.approx(1)
    assert everything[0, CLASSES.index("rude")] > 0.9


@pytest.mark.parametrize("form", ["cfg", "deft", "potential"])
def test_every_form_draws_its_class(nets, form):
    model = nets.model("high", form)
    result = tt.sample(model, 2.0, None if form == "potential" else 1.0, particles=64, num_inference_steps=20, seed=1)
    said = nets.decode(result.draw(64))
    assert sum(text in HIGH for text in said) >= 56


def exact_fills(score, later):
    """p(fill of two gaps) of the any-order model of a Score, summed over both orders; `later` is the second time."""
    blank = torch.full((1, 2), V)
    p = score(blank, 1.0).dense()[0].double().softmax(-1)
    chances = torch.zeros(V, V, dtype=torch.float64)
    for first, word in product(range(2), range(V)):
        x = blank.clone()
        x[0, first] = word
        q = score(x, later).dense()[0].double().softmax(-1)[1 - first]
        chances.select(first, word).add_(0.5 * p[first, word] * q)
    return chances


def test_gaps_are_filled_as_the_enumerated_model_says(nets):
    """Two gaps, one token a step: the draws' histogram against the sum over both orders; z below 5 in each cell."""
    given = (None, None, token("."), 0, 0)
    model = nets.model("high", "cfg", given)
    result = tt.reveal(model, 1.0, particles=4000, seed=3)
    counts = torch.bincount(result.particles[0] @ torch.tensor([V, 1]), minlength=V * V).reshape(V, V)

    def furthest(score):
        p = exact_fills(score, nets.process.time_masked(2, 1))
        assert float(p.sum()) == pytest.approx(1, abs=1e-5)
        return float(((counts - 4000 * p).abs() / (4000 * p * (1 - p) + 1).sqrt()).max())

    assert furthest(model.conditional) < 5
    assert furthest(model.base) > 20  # without the class


def test_the_text_around_is_a_condition(nets):
    """The conditional is the net with the given tokens there, the base the net with masks in their place."""
    given = (token("x"), None, token("."), 0, 0)
    model, plain, x = given_text(nets.model("high", "cfg"), given), nets.score(None), torch.full((1, 1), V)
    p, q = (score(x, 1.0).dense()[0, 0].log_softmax(-1) for score in (model.base, model.conditional))
    time = nets.process.time_masked(5, 1)
    shown = plain(torch.tensor([[token("x"), V, token("."), 0, 0]]), time).dense()[0, 1].log_softmax(-1)
    blank = plain(torch.full((1, 5), V), 1.0).dense()[0, 1].log_softmax(-1)
    assert q.allclose(shown, atol=1e-5)
    assert p.allclose(blank, atol=1e-5)
    assert not p.allclose(q, atol=1e-3)


def test_the_net_is_told_the_noise_it_sees(nets):
    """Three of five sites given: at t = 1 two fifths are masked, and the Score is of the clock's own t."""
    score = Retimed(nets.score(None), 5, 2)
    assert score.time_for_net(1.0) == pytest.approx(0.4, abs=1e-3)
    assert Retimed(nets.score(None), 5, 2, hidden=3).time_for_net(1.0) == pytest.approx(1.0)
    assert Retimed(nets.score(None), 5, 2, hidden=3).time_for_net(0.5) == pytest.approx(0.8, abs=1e-3)
    x = torch.tensor([[1, V, V, 0, 0]])
    size = score(x, 0.7).dense()[0, 1].double().logsumexp(-1)
    assert float(size) == pytest.approx(float(nets.process.log_odds_kept(0.7)), abs=1e-4)


def test_gaps_are_read_from_the_text(nets):
    assert row_with_gaps(nets, "x [MASK] .") == (token("x"), None, token("."), 0, 0)
    assert row_with_gaps(nets, "[mask:2]") == (None, None, 0, 0, 0)
    x = torch.tensor([[token("x"), 0, token("."), 0, 0]])  # an end in the gap hides nothing that was given
    assert words_of(nets, x, (token("x"), None, token("."), 0, 0)) == ["x ."]


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("x high", "no gap"), ("x [MASK:0]", "0 tokens"), ("x [MASK:9]", "the nets read 5"),
     ("x high x high x high [MASK]", "shorten")],
)  # fmt: skip
def test_a_text_that_cannot_be_filled_is_refused(nets, text, words):
    with pytest.raises(tt.InvalidInput, match=words):
        row_with_gaps(nets, text)


def test_bad_input_is_named(nets):
    for call, words in (
        (lambda: nets.encode(""), "at least one character"),
        (lambda: nets.encode(["x"]), "one text is read"),
        (lambda: nets.decode([["x", 0]]), "an int64 tensor"),
        (lambda: nets.decode(torch.tensor([1, 0])), "an int64 tensor"),
        (lambda: judged(nets.judge, ["x high"], 1), "sum to 2"),
        (lambda: nets.encode("x high x high x high"), "the nets read 5"),
        (lambda: nets.model("merry"), "'merry'; these nets know low, high, calm, rude, note"),
        (lambda: nets.model("High"), "is it 'high' that you mean"),
        (lambda: nets.model("note"), "nobody judges"),
        (lambda: nets.model("high", "magic"), "form is"),
        (lambda: nets.model("high", "cfg", (99, None, 0, 0, 0)), "token 99"),
        (lambda: nets.model("high", "cfg", (1, None)), "fill it up"),
        (lambda: nets.decode(torch.tensor([[V, 0, 0, 0, 0]])), "mask must be filled"),
        (lambda: nets.rows("x high"), "list"),
        (lambda: Facts(("a", "b"), {"g": ("b", "a")}, (2, 2, 2)), "begin otherwise"),
        (lambda: tt.load("tiny-reviews-of-nowhere"), "no folder"),
    ):
        with pytest.raises(tt.InvalidInput, match=words):
            call()


def test_populations_are_decoded_and_nothing_is_judged(nets):
    rows = nets.rows(["x high", "y low"])
    assert nets.decode(rows.reshape(2, 1, -1)) == nets.decode(rows) == ["x high", "y low"]
    assert nets.judge([]).shape == (0, len(nets.facts.judged))


def test_the_embedded_name_is_known_or_says_how_to_train(monkeypatch, tmp_path):
    from truetilt.models import hub

    monkeypatch.setattr(hub, "embedded", lambda name: tmp_path / name)
    with pytest.raises(tt.InvalidInput, match=r"tiny-reviews.*docs/text.md"):
        tt.load("tiny-reviews")


def test_another_tokenizer_and_a_missing_card_are_refused(bundle_folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(bundle_folder, broken)
    made = json.loads((broken / "sedd/tokenizer.json").read_text())
    vocabulary = made["model"]["vocab"]
    vocabulary["x"], vocabulary["y"] = vocabulary["y"], vocabulary["x"]
    (broken / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(tt.InvalidInput, match="the same size with other tokens"):
        tt.load(broken)
    (broken / "tokenizer.json").unlink()
    card = json.loads((broken / "sedd/card.json").read_text())
    (broken / "sedd/card.json").write_text(json.dumps({key: card[key] for key in card if key != "withheld"}))
    with pytest.raises(tt.InvalidInput, match=r"withheld.*copy the card"):
        tt.load(broken)
    (broken / "sedd/card.json").unlink()
    with pytest.raises(tt.InvalidInput, match="what the classes mean"):
        tt.load(broken)


def test_nets_that_do_not_belong_together_are_refused(bundle_folder, nets, tmp_path):
    small = tt.TextClassifier(tt.TextClassifierConfig(vocabulary=V, length=4, hidden=8, heads=1, groups=(2, 2)))
    with pytest.raises(tt.InvalidInput, match="must agree"):
        Reviews({**nets.nets, "judge": small}, nets.tokenizer, nets.facts)
    with pytest.raises(tt.InvalidInput, match="called 'sedd'"):
        Reviews({}, nets.tokenizer, nets.facts)
    alone = Reviews({"sedd": nets.nets["sedd"]}, nets.tokenizer, nets.facts)
    with pytest.raises(tt.InvalidInput, match="'judge'"):
        alone.judge(["x high"])
    with pytest.raises(tt.InvalidInput, match="'potential'"):
        alone.model("high")


def test_sample_prints_texts_and_saves_a_run(bundle_folder, tmp_path):
    out = tmp_path / "o"
    arguments = [
        "sample",
        str(bundle_folder),
        "--condition",
        "high",
        "--alpha",
        "3",
        "--steps",
        "10",
        "--out",
        str(out),
    ]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.stderr
    said = [line.split("  ", 1) for line in run.stdout.splitlines()]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert sum(entry["weight"] for entry in found["particles"]) == pytest.approx(1)
    assert set(found["particles"][0]["judge"]) == {"low", "high", "calm", "rude"}
    drawn = Counter(entry["text"] for entry in found["texts"])
    assert drawn.total() == 16
    assert sum(drawn[text] for text in HIGH) >= 12
    assert sorted(words[-1].strip() for words in said) == sorted(drawn)  # each once
    assert [int(words[0].partition("×")[2] or 1) for words in said] == sorted(drawn.values(), reverse=True)
    scores = {entry["text"]: entry["score"] for entry in found["texts"]}
    assert [words[0][:4] for words in said] == [f"{scores[words[-1].strip()]:.2f}" for words in said]
    told = {row["quantity"]: row["value"] for row in found["rows"]}
    mean = sum(entry["weight"] * entry["judge"]["high"] for entry in found["particles"])
    assert told["mean of the judge's p(high | text)"] == pytest.approx(mean)
    assert "before each text: the judge's probability" in run.stderr
    assert (out / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0


@pytest.mark.parametrize("more", [[], ["--condition", "high", "--alpha", "3"], ["--condition", "high", "--beta", "1"]])
def test_infill_keeps_what_is_given(bundle_folder, tmp_path, more):
    run = CliRunner().invoke(
        app, ["infill", "X [MASK] .", "--model", str(bundle_folder), "--out", str(tmp_path / "o"), *more]
    )
    assert run.exit_code == 0, run.stderr
    drawn = [entry["text"] for entry in json.loads((tmp_path / "o/result.json").read_text())["texts"]]
    assert all(text.startswith("x") and text.endswith(".") for text in drawn)
    assert {line.split("  ")[-1].strip() for line in run.stdout.splitlines()} == set(drawn)
    assert (run.stdout[1:4] == ".00") == bool(more)  # without a class there is nothing to judge
    if more:
        assert sum(text == "x high ." for text in drawn) >= 14
        assert "×" in run.stdout


def test_texts_are_merged_the_most_frequent_first():
    assert lines_of([{"text": "a"}, {"text": "b"}]) == ["a", "b"]
    found = lines_of([{"text": "a", "score": 0.5}, *[{"text": "b", "score": 0.999}] * 12])
    assert found == ["1.00 ×12  b", "0.50      a"]
    assert lines_of([]) == []


HARSH = ["sample", "FOLDER", "--condition", "toxic", "--steps", "3"], ["infill", "n x [MASK] .", "--condition", "toxic"]


@pytest.mark.parametrize("arguments", HARSH)
def test_harsh_texts_are_printed_on_request_only(bundle_folder, tmp_path, arguments):
    harsh = tmp_path / "harsh"
    shutil.copytree(bundle_folder, harsh)
    card = (harsh / "sedd/card.json").read_text()
    (harsh / "sedd/card.json").write_text(card.replace('"rude"', '"toxic"'))
    arguments = [str(harsh) if word == "FOLDER" else word for word in arguments]
    arguments += ["--model", str(harsh)] if arguments[0] == "infill" else []
    arguments += ["--out", str(tmp_path / "o")]
    hidden, shown = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--show-toxic"]))
    assert (hidden.exit_code, shown.exit_code) == (0, 0), hidden.stderr + shown.stderr
    assert hidden.stdout == ""
    assert "--show-toxic prints them" in hidden.stderr
    assert str(tmp_path / "o" / "result.json") in hidden.stderr
    saved = json.loads((tmp_path / "o/result.json").read_text())
    printed = {line.split("  ")[-1].strip() for line in shown.stdout.splitlines()}
    assert printed == {entry["text"] for entry in saved["texts"]}
    spoken = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert {entry["text"] for name in ("texts", "particles") for entry in spoken[name]} == {None}
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json", "--show-toxic"]).stdout)["texts"] == saved["texts"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["infill", "x [MASK]", "--condition", "merry"], "merry"), (["infill", "x high"], "no gap"),
     (["sample", "FOLDER", "--alpha", "2"], "--condition"), (["sample", "FOLDER", "--condition", "merry"], "merry")],
)  # fmt: skip
def test_commands_say_what_is_wrong(bundle_folder, tmp_path, arguments, words):
    arguments = [str(bundle_folder) if a == "FOLDER" else a for a in arguments]
    model = ["--model", str(bundle_folder)] if arguments[0] == "infill" else []
    run = CliRunner().invoke(app, [*arguments, *model, "--out", str(tmp_path / "o")])
    assert run.exit_code == 2
    assert words in run.stderr
    assert not (tmp_path / "o").exists()


def test_the_embedded_nets_are_those_that_were_measured():
    """Judge and potential know praise from blame, and toxic words are left out: other weights would not agree."""
    nets = tt.load("tiny-reviews")
    praise, blame = "a wonderful, moving film with a brilliant cast", "a dull, stupid mess and a waste of time"
    log_p = nets.judge([praise, blame])
    assert [float(log_p[row, nets.facts.number("positive")].exp()) > 0.8 for row in (0, 1)] == [True, False]
    potential, x = nets.model("positive").potential, nets.rows([praise, blame])
    assert potential(x, 0.0).tolist()[0] > -0.2 > -1.5 > potential(x, 0.0).tolist()[1]


def test_the_embedded_net_prefers_a_text_to_its_words_shuffled():
    nets = tt.load("tiny-reviews")
    tokens = nets.encode("this is one of the best movies i have ever seen.")
    order = [tokens[k] for k in (4, 9, 1, 7, 0, 10, 3, 8, 2, 6, 5, *range(11, len(tokens)))]
    x = torch.tensor([[*row, *[nets.tokenizer.end] * (nets.length - len(row))] for row in (tokens, order)])
    chance = []
    for site in range(1, len(tokens) - 1):
        blank = x.clone()
        blank[:, site] = nets.process.mask
        rows = nets.base()(blank, 0.02).dense().double().log_softmax(-1)
        chance.append(rows[torch.arange(2), site, x[:, site]])
    likelier = torch.stack(chance).mean(0)
    assert float(likelier[0] - likelier[1]) > 2


def test_characters_of_several_tokens_are_whole_in_a_report():
    """An emoji is four bytes and here as many tokens: read one by one they would be four strangers."""
    nets = tt.load("tiny-reviews")
    text = 'a naïve 🎬 film – "good" <b>'
    x = nets.rows([text])[0]
    assert len(nets.tokenizer.inner.encode("🎬").ids) > 1
    tile = nets.view.tile(x.numpy(), None)
    assert "naïve 🎬 film" in tile
    assert "&lt;b&gt;" in tile
    pieces = "".join(map(nets.tokenizer.piece, nets.encode(text)))
    assert pieces.encode("utf-8", "surrogateescape").decode().strip() == nets.tokenizer.decode(nets.encode(text))
