"""Tokenizers: every text comes back, the same texts give the same tokens, and what does not fit a net is refused."""

import json

import pytest

import truetilt as tt
from truetilt.models.tokenizer import END, Tokenizer, gpt2_tokenizer, load_tokenizer, train_tokenizer

TEXTS = ["the film was good, and the film was long.", "a good film is a good film", "the long good bye"] * 5


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(TEXTS, 280)


@pytest.mark.parametrize(
    "text", ["the film", "été – 映画 🎬", "\x00 \x7f tab\tand\nline", f"it said {END} and went on"]
)
def test_every_text_comes_back(trained, text):
    tokens = trained.encode(text)
    assert trained.decode(tokens) == text
    assert trained.end not in tokens  # a text cannot end itself
    assert max(tokens) < trained.vocabulary == 280


def test_a_word_is_the_same_wherever_it_stands(trained):
    assert trained.encode("film good") == trained.encode("film") + trained.encode("good")
    assert trained.encode_all(["film", "good"]) == [trained.encode("film"), trained.encode("good")]
    assert len(trained.encode("film")) == 1


def test_decoding_stops_at_the_end_and_refuses_the_mask(trained):
    tokens = trained.encode("the film")
    assert trained.decode([*tokens, trained.end, *tokens]) == "the film"
    assert trained.decode([trained.end]) == ""
    with pytest.raises(tt.InvalidInput, match="the mask must be filled in"):
        trained.decode([*tokens, 280])


@pytest.mark.parametrize("text", ["", "  \n", None])
def test_an_empty_text_is_refused(trained, text):
    with pytest.raises(tt.InvalidInput, match="at least one character"):
        trained.encode(text)


def test_the_same_texts_give_the_same_tokenizer(trained, tmp_path):
    again = train_tokenizer(iter(TEXTS), 280)
    assert again.fingerprint() == trained.fingerprint() != train_tokenizer(TEXTS, 270).fingerprint()
    trained.save(tmp_path)
    read = load_tokenizer(tmp_path, 280)
    assert read.fingerprint() == trained.fingerprint()
    assert read.encode("the film") == trained.encode("the film")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_tokenizer_of_another_net_is_refused(trained, tmp_path):
    trained.save(tmp_path)
    with pytest.raises(tt.InvalidInput, match="knows 300 tokens and the tokenizer 280"):
        load_tokenizer(tmp_path, 300)
    (tmp_path / "card.json").write_text(json.dumps({"tokenizer": "0123"}))
    with pytest.raises(tt.InvalidInput, match="the same size with other tokens"):
        load_tokenizer(tmp_path, 280)
    (tmp_path / "card.json").write_text(json.dumps({"tokenizer": trained.fingerprint()}))
    assert load_tokenizer(tmp_path, 280).vocabulary == 280


def test_what_is_no_tokenizer_is_named(tmp_path):
    with pytest.raises(tt.InvalidInput, match="has no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"half": ')
    with pytest.raises(tt.InvalidInput, match="is no tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(tt.InvalidInput, match="at least 257"):
        train_tokenizer(TEXTS, 256)
    from tokenizers import Tokenizer as Inner
    from tokenizers.models import BPE

    with pytest.raises(tt.InvalidInput, match="has no token"):
        Tokenizer(Inner(BPE()))


def test_the_files_of_gpt2(tmp_path):
    """Two files in GPT-2's format, small: bytes in its order of characters, two merges, and the end as the last."""
    with pytest.raises(tt.InvalidInput, match=r"no encoder\.json"):
        gpt2_tokenizer(tmp_path)
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))] + [
        chr(256 + k) for k in range(68)
    ]
    words = [*letters, "Ġt", "Ġth", END]
    (tmp_path / "encoder.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nĠ t\nĠt h\n", encoding="utf-8")
    made = gpt2_tokenizer(tmp_path)
    assert (made.vocabulary, made.end) == (259, 258)
    assert made.encode("to that") == [*(words.index(letter) for letter in "to"), words.index("Ġth"),
                                      *(words.index(letter) for letter in "at")]  # fmt: skip
    assert made.decode(made.encode("to that é")) == "to that é"
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nq q q q\n")
    with pytest.raises(tt.InvalidInput, match="no tokenizer of GPT-2"):
        gpt2_tokenizer(tmp_path)
