"""The second stage of the text tasks: who is asked about which texts, a second judge, adapters that are kept."""

import json
import math
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from truetilt.core.storage import write_json
from truetilt.metrics.judges import LinearJudge
from truetilt.metrics.perplexity import CausalLM
from truetilt.metrics.reference_models import adapted, causal_lm, save_adapter, tuned
from truetilt.paper import text_judges, text_scoring
from truetilt.paper.text_grid import TextTask
from truetilt.paper.text_judges import Verdicts, fit_judge, labelled
from truetilt.paper.text_rows import ScoredText, perplexity_of, read_lines, write_lines
from truetilt.paper.text_scoring import Scoring, judged, score_folder, scored
from truetilt.training.corpus import Corpus

MOOD = TextTask("sentiment", "moods", ("low", "high"), {})
TONE = TextTask("toxicity", "tones", ("rude", "calm"), {}, chance_of="rude")
WORDS = ("low", "high", "calm", "rude")


class Bag:
    """Texts as which of four words they hold."""

    name = "bag"

    def __call__(self, texts):
        return torch.tensor([[float(word in text.split()) for word in WORDS] for text in texts])


def coins(asked):
    """Every token costs log 2; `asked` is told the texts."""

    def encode(text):
        asked.append(text)
        return [1] * len(text.split())

    logits = torch.tensor([0.0, 0.0])
    return CausalLM(lambda x: logits.expand(*x.shape, 2), 2, 32, bos=0, encode=encode)


def test_the_reference_is_asked_about_some_of_a_row_all_of_a_claim_and_nothing_twice():
    lines = [ScoredText("grid", k // 10, f"text {k}", True, 0.0) for k in range(400)]
    lines += [ScoredText("claim", k, f"other {k}", True, 0.0) for k in range(150)] + [
        ScoredText("claim", 150, "", True, 0.0)
    ]
    asked = []
    found = scored(lines, coins(asked), {"claim"})
    own = [line for line in found if line.row == "grid" and line.nats is not None]
    assert len(own) == text_scoring.ASKED
    assert len({line.population for line in own}) == 40  # from everywhere
    assert sum(line.nats is not None for line in found if line.row == "claim") == 150
    assert perplexity_of(own) == pytest.approx(2.0)
    before = len(asked)
    again = scored([*found, ScoredText("new", 0, "one more", True, 0.0)], coins(asked), {"claim"})
    assert asked[before:] == ["one more"]
    assert again[:-1] == found


def test_a_text_said_twice_counts_as_often_as_it_was_chosen():
    """Costs go to the chosen lines: spread over all equal texts they would weigh a row by its copies."""
    lines = [ScoredText("r", k, "the same" if k % 4 else f"text of its own {k}", True, 0.0) for k in range(400)]
    found = scored(lines, coins([]), set())
    assert sum(line.nats is not None for line in found) == text_scoring.ASKED


def test_answers_are_written_as_they_come(monkeypatch):
    monkeypatch.setattr(text_scoring, "_LOT", 3)
    kept = []
    scored([ScoredText("r", k, f"a {k}", True, 0.0) for k in range(8)], coins([]), set(), kept.append)
    assert [sum(line.nats is not None for line in lines) for lines in kept] == [3, 6, 8]


def test_a_judge_is_fitted_to_the_half_of_judges_alone(corpus, monkeypatch):
    found = Corpus.read(corpus)
    texts, labels, classes = labelled(found, TONE, "judge", 100)
    assert (len(texts), classes) == (8, ("calm", "rude"))
    assert [("rude" in text) for text in texts] == [bool(label) for label in labels]
    assert len(labelled(found, MOOD, "test", 16)[0]) == 16
    seen = []
    parts = text_judges.labelled
    monkeypatch.setattr(text_judges, "labelled", lambda c, t, part, most: seen.append(part) or parts(c, t, part, most))
    judge, card = fit_judge(Bag(), TONE, str(corpus), None)
    assert seen == ["judge", "test"]
    assert card["test_accuracy"] == 1.0
    assert judge.classes == ("calm", "rude")
    with pytest.raises(tt.InvalidInput, match="none with"):
        labelled(found, replace(MOOD, conditions=("angry",)), "judge", 5)


def test_a_judge_of_toxicity_is_calibrated_to_published_scores(corpus, tmp_path):
    """Scores of .7 and .2: the judge, sure of itself before, says so after."""
    tones = (("rude", 0.7), ("rude", 0.7), ("calm", 0.2), ("calm", 0.2))  # every second one calibrates
    rows = "".join(f"comment {k} {tones[k % 4][0]},{tones[k % 4][1]}\n" for k in range(40))
    (tmp_path / "scores.csv").write_text("comment_text,TOXICITY@6\n" + rows, encoding="utf-8")
    before, _ = fit_judge(Bag(), TONE, str(corpus), None)
    after, card = fit_judge(Bag(), TONE, str(corpus), str(tmp_path / "scores.csv"))
    assert float(before(["n x rude"]).exp()[0, 1]) > 0.8
    assert after(["n x rude", "n x calm"])[:, 1].exp().tolist() == pytest.approx([0.7, 0.2], abs=0.02)
    assert card["calibrated_on"] == card["perspective"]["texts"] == 20


def a_judge():
    weight = torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0]], dtype=torch.float64)
    return Verdicts(LinearJudge(Bag(), ("low", "high"), weight, torch.zeros(2, dtype=torch.float64)), {"by": "hand"})


def test_a_second_judge_has_the_word_and_the_first_is_kept(tmp_path, monkeypatch):
    lines = [ScoredText("r-high", k, text, False, -2.0) for k, text in enumerate(["x high", "x low", "", "y high"])]
    found = judged(lines, [{"name": "r-high", "condition": "high"}], a_judge())
    assert [line.right for line in found] == [True, False, False, True]
    assert found[0].log_p == pytest.approx(3 - math.log(1 + math.exp(3)))
    assert found[2].log_p == pytest.approx(-math.log(2))  # of no class
    assert {(line.right_own, line.log_p_own) for line in found} == {(False, -2.0)}
    assert judged(found, [{"name": "r-high", "condition": "high"}], a_judge()) == found  # the first stays the first
    write_lines(tmp_path, lines)
    row = {"name": "r-high", "method": "smc", "condition": "high", "alpha": 2.0, "beta": 1.0, "steps": 4, "score": 0.0}
    row |= {"claim": False, "perplexity": None, "distinct_2": None}
    notes = {"notes": ["perplexity by smollm2", "scored by someone else"]}
    write_json(tmp_path / "result.json", {"experiment": "sentiment", "score": "s", "rows": [row], "claims": {}} | notes)
    monkeypatch.setattr(text_scoring, "second_judge", lambda *_: a_judge())
    drawn = []

    class Figure:
        def savefig(self, path, dpi):
            path.write_bytes(b"png")

    score_folder(tmp_path, MOOD, Scoring(judge="minilm"), lambda result: drawn.append(result) or Figure())
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (result["rows"][0]["score"], result["rows"][0]["score_own"]) == (0.5, 0.0)
    assert result["judge"] == {"by": "hand"}
    assert [note.split(";")[0] for note in result["notes"]] == ["perplexity by smollm2", "scored by minilm"]
    assert read_lines(tmp_path)[0].right


def test_who_is_not_there_is_named_first(tmp_path):
    for how, words in (
        (Scoring(), "somebody to ask"),
        (Scoring("gpt5"), "gpt5"),
    ):
        write_json(tmp_path / "result.json", {"experiment": "sentiment", "rows": [], "notes": []})
        write_lines(tmp_path, [])
        with pytest.raises(tt.InvalidInput, match=words):
            score_folder(tmp_path, MOOD, how, lambda result: None)
    with pytest.raises(tt.InvalidInput, match="its own folder"):
        score_folder(tmp_path, TONE, Scoring("smollm2"), lambda result: None)


def test_an_adapter_is_kept_and_comes_back_to_the_same_bits(tmp_path):
    hf = pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")
    pytest.importorskip("peft", reason="pip install 'truetilt[hf]'")
    config = hf.LlamaConfig(
        vocab_size=17, max_position_embeddings=12, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lm = causal_lm(hf.LlamaForCausalLM(config).eval(), bos=0)
    x = torch.tensor([[1, 2, 3, 4]])
    before = lm.net(x).logits
    after = tuned(lm, [[1, 2, 3, 4, 5]] * 4, rank=2, steps=4, lr=0.1)
    save_adapter(after, tmp_path)
    again = adapted(lm, tmp_path)
    assert torch.equal(again.net(x).logits, after.net(x).logits)
    assert not torch.equal(before, after.net(x).logits)
    assert torch.equal(lm.net(x).logits, before)
    with pytest.raises(tt.InvalidInput, match="no adapter"):
        save_adapter(lm, tmp_path)
    with pytest.raises(tt.InvalidInput, match="adapter_model"):
        adapted(lm, tmp_path / "nowhere")
