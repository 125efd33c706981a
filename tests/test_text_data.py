"""Texts from files: one form for all, nothing skipped in silence, and no text on both sides of a line."""

import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import truetilt as tt
from truetilt.models.tokenizer import load_tokenizer
from truetilt.training.corpus import COLUMNS, PARTS, Corpus
from truetilt.training.packing import packed, padded, segments
from truetilt.training.prepare import main, place_all, prepare
from truetilt.training.recipe import CorpusSource, Recipe, fraction, half_of, read_recipe, roots
from truetilt.training.text_data import (
    Example,
    normalise,
    read_civil,
    read_folder,
    read_imdb,
    read_plain,
    read_sst2,
    sentences,
)


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        ("It's good,<br /><br />(I won't lie)!", "it's good, (i won't lie)!"),
        ("it 's good , -lrb- i wo n't lie -rrb- !", "it's good, (i won't lie)!"),
        ("`` no '' he 'd say ; they 've gone ...", "\" no \" he'd say; they've gone..."),
        ("“Curly” ‘quotes’ – and\u00a0spaces\t here ", "\"curly\" 'quotes' - and spaces here"),
        ("and\\/or", "and/or"),
    ],
)
def test_corpora_come_in_one_form(raw, form):
    assert normalise(raw) == form == normalise(form)


def test_sentences_join_to_their_text():
    text = 'it was long. was it good? "yes!" she said (and left.) 3.5 stars'
    assert sentences(text) == ["it was long.", "was it good?", '"yes!"', "she said (and left.)", "3.5 stars"]
    assert " ".join(sentences(text)) == text


def write(path, text):
    """Plain or packed, as the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("end", ["", ".gz", ".xz"])
def test_plain_files(tmp_path, end):
    assert list(read_plain(write(tmp_path / f"a.txt{end}", "One two\nThree\n"))) == [
        Example("one two", None, "train"),
        Example("three", None, "train"),
    ]
    assert list(read_plain(write(tmp_path / f"a.tsv{end}", "1\tgood film\n0\tbad\n"), "test")) == [
        Example("good film", 1, "test"),
        Example("bad", 0, "test"),
    ]
    assert list(read_plain(write(tmp_path / f"a.csv{end}", '"two\nlines, one text",1\n'))) == [
        Example("two lines, one text", 1, "train")
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"one\n  \n", "row 2: the text is empty"),
        ("a.txt", b"", "is empty"),
        ("a.txt", b"fine\ncaf\xe9\n", "not UTF-8"),
        ("a.tsv", b"good\tfilm\n", "the label is 'good'"),
        ("a.tsv", b"1\n", "1 fields"),
        ("a.csv", b"text,-1\n", "the label is '-1'"),
        ("a.csv", b'"text,1\n', "fields"),
        ("a.doc", b"text", "ends in '.doc'"),
        ("a.txt.xz", b"no archive", "no whole .xz file"),
        ("a.txt.gz", b"no archive", "no whole .gz file"),
    ],
)
def test_what_cannot_be_a_text_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(tt.InvalidInput, match=words):
        list(read_plain(tmp_path / name))


def test_a_missing_file_and_a_half_archive(tmp_path):
    with pytest.raises(tt.InvalidInput, match="there is no file"):
        list(read_plain(tmp_path / "no.txt"))
    whole = write(tmp_path / "a.txt.xz", "a text\n" * 1000).read_bytes()
    (tmp_path / "a.txt.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(tt.InvalidInput, match="fetch it again"):
        list(read_plain(tmp_path / "a.txt.xz"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(tt.InvalidInput, match=r"train\.\*"):
        list(read_folder(tmp_path / "empty"))


def test_the_layouts_of_the_corpora(tmp_path):
    imdb = write(tmp_path / "imdb.tsv.xz", "train/pos\t0_9\tGood\tfilm\ntest/neg\t1_2\tBad\ntrain/unsup\t2_0\tA film\n")
    assert list(read_imdb(imdb)) == [
        Example("good film", 1, "train"),
        Example("bad", 0, "test"),
        Example("a film", None, "train"),
    ]
    with pytest.raises(tt.InvalidInput, match="expected train/pos"):
        list(read_imdb(write(tmp_path / "odd.tsv", "train/maybe\t0_9\tFilm\n")))
    for split, line in (("train", "1\tgood fun\n"), ("dev", "0\tno fun\n"), ("test", "1\tso good\n")):
        write(tmp_path / f"sst2/{split}.tsv", line)
    write(tmp_path / "sst2/glue-phrases-train.tsv.xz", "label\tsentence\n1\tgood \n0\tno fun \n1\tso good \n")
    found = list(read_sst2(tmp_path / "sst2"))
    assert Counter(example.split for example in found) == {"train": 2, "dev": 1, "test": 1}
    assert [example.text for example in found if example.split == "train"] == ["good fun", "good"]
    votes = "n,comment_id,worker,country,all toxic,not toxic\n0,7,1,A,False,True\n1,7,2,A,False,False\n"
    votes += "2,8,1,A,False,False\n"
    write(tmp_path / "civil/civil-annotations.csv.xz", votes)
    write(tmp_path / "civil/civil-comments.csv.xz", "comment_id,comment_text\n7,Half said no\n8,None did\n")
    assert [example.label for example in read_civil(tmp_path / "civil")] == [0, 1]
    write(tmp_path / "civil/civil-comments.csv.xz", "comment_id,comment_text\n9,Nobody looked\n")
    with pytest.raises(tt.InvalidInput, match="no annotation"):
        list(read_civil(tmp_path / "civil"))


def test_segments_hold_whole_sentences_and_leave_room_for_an_end():
    parts = [[1, 2], [3, 4, 5], [6], list(range(10, 20)), [7]]
    assert list(segments(parts, 6)) == [[1, 2, 3, 4, 5], [6], [10, 11, 12, 13, 14, 15], [7]]
    assert list(segments([], 6)) == []


def test_padded_rows_end_and_packed_rows_are_full():
    flat, lengths = np.array([1, 2, 3, 4, 5, 6], np.uint16), np.array([2, 4])
    assert padded(flat, lengths, 4, 9).tolist() == [[1, 2, 9, 9], [3, 4, 5, 6]]
    for wrong, words in ((np.array([1, 5]), "cut it into segments"), (np.array([2, 3]), "6 are there")):
        with pytest.raises(tt.InvalidInput, match=words):
            padded(flat, wrong, 4, 9)
    rows = [row.tolist() for row in packed([[1, 2], [3], [4, 5, 6, 7], [8]], 4, 9)]
    assert rows == [[1, 2, 9, 3], [9, 4, 5, 6], [7, 9, 8, 9]]


def test_a_phrase_is_on_the_side_of_its_sentence():
    texts = ["a film, as good as gold.", "as good as", "film as good", "gold", "not good at all", "at all", "old"]
    found = roots(texts)
    assert {found[text] for text in texts[:4]} == {texts[0]}  # marks do not hide a phrase
    assert found["at all"] == "not good at all"
    assert found["old"] == "old"  # in "gold", but no word of it


def test_halves_are_halves_and_depend_on_the_text_alone():
    count = Counter(half_of(f"text {k}") for k in range(4000))
    assert abs(count["judge"] - 2000) < 5 * 4000**0.5 / 2
    first = "".join(half_of(f"text {k}")[0] for k in range(8))
    assert first == "gjjjgjjj"  # in every process, on every machine
    assert fraction("a", "half") != fraction("a", "test")


RECIPE = {
    "length": 48,
    "vocabulary": 300,
    "groups": {"mood": ["low", "high"], "tone": ["calm", "rude"]},
    "kinds": {"tone": "note"},
    "sources": {
        "films": {"path": "films", "group": "mood", "nested": True},
        "notes": {"path": "notes.csv", "group": "tone", "test_share": 0.3},
        "tales": {"path": "tales.txt", "unlabelled": "tale"},
    },
}


@pytest.fixture
def shelf(tmp_path):
    """Three small sources; some texts are parts of others, some are held out and turn up again."""
    films = [f"film {k} was a very long and {'good' if k % 2 else 'bad'} film of {k} hours" for k in range(40)]
    phrases = [f"and {'good' if k % 2 else 'bad'} film of {k} hours" for k in range(40)]
    lines = [f"{k % 2}\t{text}\n" for k, text in enumerate((*films, *phrases, "held out for the test"))]
    write(tmp_path / "films/train.tsv", "".join(lines))
    write(tmp_path / "films/test.tsv", "1\tHeld out for the test\n0\tAnother one, held out\n")
    write(tmp_path / "notes.csv", "".join(f"note {k} says so,{k % 2}\n" for k in range(60)))
    write(tmp_path / "tales.txt", "once upon a time there was a film. it was good. it was long, and then it was over.\n"
          "another one, held out\n")  # fmt: skip
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    return tmp_path


def test_no_text_is_on_two_sides(shelf):
    placed = place_all(read_recipe(shelf / "recipe.json"), shelf)
    parts = {part: {text.text for text in placed if text.part == part} for part in PARTS}
    assert sum(map(len, parts.values())) == len(placed) == len({text.text for text in placed})
    assert parts["test"] >= {"held out for the test", "another one, held out"}
    held = {text for text in parts["guidance"] | parts["judge"] if text in parts["test"]}
    assert not held
    for k in range(40):
        mood = "good" if k % 2 else "bad"
        pair = {f"film {k} was a very long and {mood} film of {k} hours", f"and {mood} film of {k} hours"}
        assert pair <= parts["guidance"] or pair <= parts["judge"]
    assert all(text.label >= 0 for text in placed if text.part in ("judge", "test"))
    tested = sum(text.part == "test" and text.source == 1 for text in placed)
    assert 5 < tested < 35  # a share of the 60 notes


def test_prepared_arrays_are_the_texts(shelf, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["--config", str(shelf / "recipe.json"), "--data", str(shelf), "--out", str(out)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((out / "corpus.json").read_text())
    assert facts["classes"] == ["low", "high", "calm", "rude", "note", "tale"]
    assert facts["withheld"] == [6, 6, 4, 4, 4, 5, 6]  # moods leave nothing, tones a note; notes and tales themselves
    corpus, made = Corpus.read(out), load_tokenizer(out, 300)
    flat, rows = corpus.arrays()
    assert (flat.dtype, rows.shape[1]) == (np.uint16, len(COLUMNS))
    placed = place_all(read_recipe(shelf / "recipe.json"), shelf)
    starts = np.cumsum(rows[:, 0]) - rows[:, 0]
    documents = np.split(flat, starts[rows[:, 1] == 1][1:])
    assert [made.decode(document.tolist()) for document in documents] == [text.text for text in placed]
    everything = corpus.texts(("guidance",), labelled=False)
    assert everything.labels.unique().tolist() == [0, 1, 2, 3, 5]
    assert int(everything.labels[everything.kinds["tales"]].unique()) == 5
    again = prepare(read_recipe(shelf / "recipe.json"), shelf, tmp_path / "again")
    assert again["fingerprints"] == facts["fingerprints"]


def test_short_texts_may_be_a_source_of_their_own(shelf):
    """Which half a phrase is in does not depend on which source it came by."""
    recipe = read_recipe(shelf / "recipe.json")
    one = {text.text: text.part for text in place_all(recipe, shelf)}
    films = {"long": CorpusSource("films", group="mood", nested=True, least_words=9)}
    films["short"] = CorpusSource("films", group="mood", nested=True, most_words=8)
    two = place_all(Recipe(films, recipe.groups), shelf)
    assert {text.source for text in two if len(text.text.split()) <= 8 and text.part != "test"} == {1}
    assert all(one[text.text] == text.part for text in two)
    assert len(two) == 82


def test_a_source_may_come_after_the_tokenizer(shelf, tmp_path):
    """Left out of the tokenizer's texts, a source changes neither the tokenizer nor what others place where."""
    recipe = read_recipe(shelf / "recipe.json")
    write(shelf / "more.csv", "".join(f"quixotic zebras vex {k} jackdaws,1\n" for k in range(30)))
    found = {}
    for name, more in (
        ("without", {}),
        ("read", {"more": CorpusSource("more.csv", group="tone")}),
        ("after", {"more": CorpusSource("more.csv", group="tone", tokenizer=False)}),
    ):
        sources = {**recipe.sources, **more}
        found[name] = prepare(Recipe(sources, recipe.groups, recipe.kinds, 24, 300), shelf, tmp_path / name)
    same = found["without"]["fingerprints"]["tokenizer.json"]
    assert found["after"]["fingerprints"]["tokenizer.json"] == same != found["read"]["fingerprints"]["tokenizer.json"]
    assert found["after"]["counts"] != found["without"]["counts"]


def test_parts_share_no_segment(shelf, tmp_path):
    """Texts that differ and share a sentence, in rows so short that the sentence is a row."""
    write(shelf / "films/test.tsv", "1\tThis sentence is held out.\n")
    tales = "".join(f"the tale number {k} begins here. this sentence is held out. tale {k} ends.\n" for k in range(9))
    write(shelf / "tales.txt", tales)
    recipe = read_recipe(shelf / "recipe.json")
    prepare(Recipe(recipe.sources, recipe.groups, recipe.kinds, 24, 300), shelf, tmp_path / "out")
    corpus = Corpus.read(tmp_path / "out")
    parts = [set(map(tuple, corpus.texts((part,), labelled=False).tokens.tolist())) for part in PARTS[:3]]
    assert [one & other for one in parts for other in parts if one is not other] == [set()] * 6
    rows = corpus.arrays()[1]
    assert (rows[:, 4] == 2).sum() == 2 * 9  # of three sentences each
    assert rows[:, 1].sum() == len(place_all(recipe, shelf))  # each text still begins once


def test_labels_at_the_ends_of_long_texts(shelf, tmp_path):
    long = " ".join(f"this is the sentence number {k}." for k in range(6))
    write(shelf / "notes.csv", f"{long},1\n")
    recipe = read_recipe(shelf / "recipe.json")
    notes = CorpusSource("notes.csv", group="tone", label_at="ends")
    prepare(Recipe({**recipe.sources, "notes": notes}, recipe.groups, recipe.kinds, 16, 300), shelf, tmp_path / "out")
    rows = Corpus.read(tmp_path / "out").arrays()[1]
    labels = rows[rows[:, 4] == 1][:, 2].tolist()
    assert labels in ([3, *[4] * (len(labels) - 2), 3], [3, 3])  # rude, notes between; a judge has no use for those
    assert len(labels) >= 2


def test_middles_of_the_judges_texts_go_to_the_nets_that_guide(shelf, tmp_path):
    """The judge keeps both ends, and no row is on two sides; without `middles` nobody has them."""
    long = [" ".join(f"this is the sentence number {j} of note {k}." for j in range(6)) for k in range(20)]
    write(shelf / "notes.csv", "".join(f"{text},1\n" for text in long))
    recipe, found = read_recipe(shelf / "recipe.json"), {}
    for middles in (False, True):
        notes = CorpusSource("notes.csv", group="tone", label_at="ends", test_share=0.01, middles=middles)
        sources = {**recipe.sources, "notes": notes}
        prepare(Recipe(sources, recipe.groups, recipe.kinds, 24, 300), shelf, tmp_path / "out")
        corpus = Corpus.read(tmp_path / "out")
        rows, kinds = corpus.arrays()[1], [corpus.texts((part,), labelled=False) for part in ("guidance", "judge")]
        found[middles] = rows[rows[:, 4] == 1]
        assert set(kinds[1].labels[kinds[1].kinds["notes"]].tolist()) == {3}  # only labelled ends
        assert not set(map(tuple, kinds[0].tokens.tolist())) & set(map(tuple, kinds[1].tokens.tolist()))
    judges = [(rows[:, 3] == PARTS.index("judge")).sum() for rows in found.values()]
    assert judges[0] == judges[1] > 0
    assert len(found[True]) > len(found[False])


def test_held_out_texts_beyond_the_share_may_be_learned(shelf):
    write(shelf / "films/test.tsv", "".join(f"1\tThe held out film number {k}\n" for k in range(50)))
    recipe, found = read_recipe(shelf / "recipe.json"), {}
    for rest in (False, True):
        films = CorpusSource("films", group="mood", test_share=0.2, rest=rest)
        found[rest] = place_all(Recipe({"films": films}, recipe.groups), shelf)
    tested, learned = ([text for text in found[True] if (text.part == "test") == part] for part in (True, False))
    assert [text for text in found[False] if text.part == "test"] == tested
    assert 0 < len(tested) < 30
    extra = {text.text for text in learned} - {text.text for text in found[False]}
    assert len(extra) == 50 - len(tested)
    assert len({text.part for text in learned if text.text in extra}) == 2  # in both halves


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sources": {}}, "names no sources"),
        ({"sources": {"films": {"path": "films", "reader": "pdf"}}}, "reader is 'pdf'"),
        ({"sources": {"films": {"path": "films", "colour": 1}}}, "unknown keys: colour"),
        ({"sources": {"films": {"group": "mood"}}}, "lacks path"),
        ({"sources": {"films": {"path": "films", "group": "taste"}}}, "taste"),
        ({"sources": {"films": {"path": "films", "label_at": "middle"}}}, "label_at"),
        ({"sources": {"films": {"path": "films", "test_share": 0}}}, "test_share is 0"),
        ({"groups": {"mood": ["low", "low"], "tone": ["a", "b"]}}, "nothing else"),
        ({"length": 1}, "too few"),
        ({"length": "long"}, "length is 'long'"),
        ({"vocabulary": 70000}, "at most 65536"),
        ({"vocabulary": 60000}, "lower vocabulary"),
        ({"tokenizer": "films"}, "has no encoder"),
        ({"groups": {"mood": ["low"], "tone": ["calm", "rude"]}}, "has the label 1 and mood 1 classes"),
        ({"data": "x"}, "unknown keys: data"),
    ],
)
def test_a_wrong_recipe_is_refused(shelf, tmp_path, capsys, changes, words):
    (shelf / "recipe.json").write_text(json.dumps(RECIPE | changes))
    assert main(["--config", str(shelf / "recipe.json"), "--data", str(shelf), "--out", str(tmp_path / "o")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "o/corpus.json").exists()


def test_the_committed_recipe_is_whole():
    recipe = read_recipe(Path(__file__).parents[1] / "configs/reviews/tokenizer.yaml")
    assert recipe.classes == ("negative", "positive", "non-toxic", "toxic", "comment", "passage")
    assert recipe.withheld == (6, 6, 4, 4, 4, 5, 6)
