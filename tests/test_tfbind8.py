"""TF Bind 8: the formats a landscape comes in, every fault it can have, and what the experiment then finds."""

import gzip
import itertools
import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from truetilt.cli.main import app
from truetilt.commands import job_runner
from truetilt.paper import tfbind8
from truetilt.paper.binding import lean_model, prior_law, problem
from truetilt.paper.dna_landscape import Landscape, read_landscape

WORDS = np.array(["".join(letters) for letters in itertools.product("ACGT", repeat=8)])
DIGITS = np.array(list(itertools.product(range(4), repeat=8)))


def other_strand(word):
    return word[::-1].translate(str.maketrans("ACGT", "TGCA"))


MATE = np.searchsorted(WORDS, [other_strand(word) for word in WORDS])
LISTED = np.flatnonzero(np.arange(4**8) <= MATE)  # one strand of each pair


def landscape():
    """Neighbouring and distant letters act together; both strands score alike, in [0, 1] and with six decimals."""
    rng = np.random.default_rng(0)
    pairs = [(i, i + 1) for i in range(7)] + [(i, i + 4) for i in range(4)]
    score = sum(rng.normal(size=(4, 4))[DIGITS[:, i], DIGITS[:, j]] for i, j in pairs)
    score = score + score[MATE]
    return np.round((score - score.min()) / np.ptp(score), 6)


SCORES = landscape()


def write_text(path, rows, header="sequence,score", mark=","):
    text = "\n".join([header, *(mark.join(map(str, row)) for row in rows)]) + "\n"
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))


def write_arrays(folder, x=DIGITS, y=SCORES, names=("tf_bind_8-x-0.npy", "tf_bind_8-y-0.npy")):
    np.save(folder / names[0], np.asarray(x))
    np.save(folder / names[1], np.asarray(y))


def both():
    return list(zip(WORDS, SCORES, strict=True))


def pbm(folder, name="SIX6_REF_R1_8mers.txt.gz", mate=MATE):
    """As microarray files are: tabs, the reverse complement in a column of the same name, one strand a row."""
    rows = [(WORDS[i], WORDS[mate[i]], SCORES[i], 1000 * SCORES[i], 3.0) for i in LISTED]
    write_text(folder / name, rows, "8-mer\t8-mer\tE-score\tMedian\tZ-score", "\t")


FORMATS = {
    "arrays": lambda d: write_arrays(d, DIGITS.astype(np.int32), SCORES.astype(np.float32)[:, None]),
    "arrays, palindromes twice": lambda d: write_arrays(
        d, DIGITS[np.r_[MATE[LISTED], LISTED]], SCORES[np.r_[LISTED, LISTED]], ("SIX6-x.npy", "SIX6-y.npy")
    ),
    "csv": lambda d: write_text(d / "a.csv", both()),
    "csv, small letters, an index": lambda d: write_text(
        d / "a.csv", [(i, s, w.lower()) for i, (w, s) in enumerate(both())], ",Binding,Seq"
    ),
    "tsv.gz": lambda d: write_text(d / "a.tsv.gz", both(), "kmer\tvalue", "\t"),
    "pbm": pbm,
    "pbm.xz": lambda d: pbm(d, "SIX6_REF_R1_8mers.txt.xz"),
    "pbm, packed and not named so": lambda d: pbm(d, "8mers.txt.xz") or (d / "8mers.txt.xz").rename(d / "8mers.tsv"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_landscape(name, tmp_path):
    (tmp_path / "README.txt").write_text("a word about the data\n")
    FORMATS[name](tmp_path)
    found = read_landscape(tmp_path)
    np.testing.assert_allclose(found.scores, SCORES, atol=1e-7)
    assert found.filled == (4**8 - len(LISTED) if name.startswith("pbm") else 0)
    assert "README.txt" not in found.files


def test_shards_are_put_together(tmp_path):
    for shard, part in enumerate((slice(0, 50_000), slice(50_000, None))):
        write_arrays(tmp_path, DIGITS[part], SCORES[part], (f"tf-x-{shard}.npy", f"tf-y-{shard}.npy"))
    np.testing.assert_array_equal(read_landscape(tmp_path).scores, SCORES)


def changed(row, value):
    rows = both()
    rows[row] = value
    return rows


def cut(path, share=0.5):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])


def with_nan():
    scores = SCORES.copy()
    scores[7] = np.nan
    return scores


def write_cut_array(folder):
    write_arrays(folder)
    cut(folder / "tf_bind_8-x-0.npy")


def write_cut(folder, name):
    pbm(folder, name)
    cut(folder / name)


def write_two(folder):
    write_arrays(folder)
    write_text(folder / "a.csv", both())


FAULTS = {
    "holds no landscape": lambda d: None,
    "holds several": write_two,
    "1 arrays of sequences .* and 0 of scores": lambda d: np.save(d / "x.npy", DIGITS),
    "array of numbers; it may be cut short": write_cut_array,
    "gz cannot be read as text; it may be cut short": lambda d: write_cut(d, "8mers.txt.gz"),
    "xz cannot be read as text; it may be cut short": lambda d: write_cut(d, "8mers.txt.xz"),
    "line 2: 'AAAAAAAA' is not the reverse complement of 'AAAAAAAA'": lambda d: pbm(d, mate=np.arange(4**8)),
    "not an array of numbers": lambda d: write_arrays(d, DIGITS, WORDS),
    "cannot be read as an array": lambda d: write_arrays(d, DIGITS, np.array([None] * 4**8)),
    "row 7: a score is NaN": lambda d: write_arrays(d, DIGITS, with_nan()),
    "letters other than 0": lambda d: write_arrays(d, DIGITS + 1),
    r"shape \(65536, 7\)": lambda d: write_arrays(d, DIGITS[:, :7]),
    r"must be \[65536\]": lambda d: write_arrays(d, DIGITS, SCORES[:-1]),
    "the header is 'AAAAAAAA,0": lambda d: write_text(d / "a.csv", both()[1:], f"AAAAAAAA,{SCORES[0]}"),
    "the header is ''": lambda d: (d / "a.csv").write_text(""),
    "line 12: 'ACGTACGN' is not 8 letters": lambda d: write_text(d / "a.csv", changed(10, ("ACGTACGN", 1))),
    "line 12: 'ACGT' is not": lambda d: write_text(d / "a.csv", changed(10, ("ACGT", 1))),
    "line 12: the score 'nan'": lambda d: write_text(d / "a.csv", changed(10, (WORDS[10], "nan"))),
    "line 12: the score 'high'": lambda d: write_text(d / "a.csv", changed(10, (WORDS[10], "high"))),
    "line 12: a column is missing": lambda d: write_text(d / "a.csv", changed(10, (WORDS[10],))),
    "AAAAAAAA is listed twice": lambda d: write_text(d / "a.csv", [*both(), ("AAAAAAAA", 99)]),
    "no score for 2 of the 65,536 .* AAAAAAAC": lambda d: write_text(
        d / "a.csv", [row for row in both() if row[0] not in ("AAAAAAAC", "GTTTTTTT")]
    ),
    "no score for 65,536": lambda d: write_text(d / "a.csv", []),
    "the same score": lambda d: write_arrays(d, DIGITS, np.ones(4**8)),
}


@pytest.mark.parametrize("words", FAULTS)
def test_every_fault_is_named(words, tmp_path):
    FAULTS[words](tmp_path)
    with pytest.raises(tt.InvalidInput, match=words):
        read_landscape(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--data", "nowhere"], "there is no folder nowhere"), (["--data", "."], "no landscape"), ([], "--data")],
)
def test_wrong_usage_exits_two_and_writes_nothing(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["reproduce", "tfbind8", *arguments])
    assert run.exit_code == 2
    assert words in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def found():
    return Landscape(torch.from_numpy(SCORES), (), 4**8, 0)


@pytest.mark.parametrize("order", [1, 2])
def test_the_markov_prior_is_that_of_the_strong_binders(found, order):
    law = prior_law(found, order)
    strong = DIGITS[np.quantile(SCORES, 0.9) <= SCORES]
    start, step = np.ones((4,) * order), np.ones((4,) * (order + 1))
    for x in strong:
        start[tuple(x[:order])] += 1
        for first in range(8 - order):
            step[tuple(x[first : first + order + 1])] += 1
    start, step = start / start.sum(), step / step.sum(-1, keepdims=True)
    for x in DIGITS[::4001]:
        by_hand = start[tuple(x[:order])] * np.prod([step[tuple(x[i : i + order + 1])] for i in range(8 - order)])
        assert float(law[tuple(x)]) == pytest.approx(by_hand)
    assert float(law.sum()) == pytest.approx(1)


def test_the_target_is_what_the_page_says(found):
    binds = 1 / (1 + np.exp(-(SCORES - np.quantile(SCORES, 0.9)) / (SCORES.std() / 4)))
    target = problem(found, "uniform").target(4.0).reshape(-1)
    np.testing.assert_allclose(target, binds**4 / (binds**4).sum(), rtol=1e-9)


def test_the_lean_model_is_the_model(found):
    table = problem(found, "markov1")
    whole, lean = table.model(), lean_model(table)
    x = torch.randint(0, 5, (50, 8), generator=torch.Generator().manual_seed(0))
    for t in (0.9, 0.1):
        torch.testing.assert_close(lean.base(x, t).dense(), whole.base(x, t).dense())
        torch.testing.assert_close(lean.conditional(x, t).dense(), whole.conditional(x, t).dense())
        torch.testing.assert_close(lean.potential(x, t), whole.potential(x, t))


def test_another_landscape_in_the_same_folder_is_another_job(tmp_path):
    settings = job_runner.Settings(quick=True, data=str(tmp_path))
    write_arrays(tmp_path)
    before = {job.name for job in tfbind8.jobs(settings)}
    write_arrays(tmp_path, DIGITS, SCORES**2)
    assert len(before) == 4
    assert not before & {job.name for job in tfbind8.jobs(settings)}


def test_the_command_is_printed_with_its_folder():
    settings = job_runner.Settings(quick=True, data="my data")
    line = "truetilt reproduce tfbind8 --quick --data 'my data' --seed 0 --device cpu"
    assert job_runner.command(tfbind8.EXPERIMENT, settings) == line


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfbind8")
    (folder / "data").mkdir()
    pbm(folder / "data")
    words = ["reproduce", "tfbind8", "--quick", "--data", folder / "data", "--out", folder / "out", "--json"]
    run = subprocess.run([sys.executable, "-m", "truetilt", *map(str, words)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run, folder / "out"


def test_the_command_end_to_end(quick_run):
    run, out = quick_run
    result = json.loads(run.stdout)
    assert result == json.loads((out / "result.json").read_text())
    assert sorted(path.name for path in out.iterdir()) == ["figure.png", "result.json"]
    assert len(result["rows"]) == 2 * 2 * 8
    assert f"note: {4**8 - len(LISTED):,} 8-mers" in run.stderr
    assert result["landscape"]["filled"] == 4**8 - len(LISTED)
    assert f"--data {out.parent / 'data'}" in result["command"]


def test_guidance_is_biased_and_the_weighted_samplers_are_not(quick_run):
    rows = {(r["prior"], r["alpha"], r["method"]): r for r in json.loads(quick_run[0].stdout)["rows"]}
    for prior in ("uniform", "markov1"):
        floor, floor4 = rows[prior, 2.0, "iid"], rows[prior, 4.0, "iid"]
        for method in ("smc-tilted", "any-order", "any-order-systematic", "any-order-moves", "any-order-pilot"):
            row = rows[prior, 2.0, method]
            assert row["tv_mean"] < 2 * floor["tv_mean"]
            assert row["pair_tv"] < 2 * floor["pair_tv"]
            assert row["log_z_error"] < 0.1
        for method in ("any-order-moves", "any-order-pilot"):
            assert rows[prior, 4.0, method]["tv_mean"] < 2 * floor4["tv_mean"]
        for method in ("guidance-rate", "guidance-posterior"):
            assert rows[prior, 2.0, method]["tv_mean"] > 2 * floor["tv_mean"]
            assert rows[prior, 4.0, method]["tv_mean"] > 4 * floor4["tv_mean"]
            assert rows[prior, 4.0, method]["score_error"] > 10 * floor4["score_error"]
            assert rows[prior, 4.0, method]["log_z_error"] is None
    costs = {"guidance-rate": 100, "any-order": 8, "any-order-moves": 35, "any-order-pilot": 24}
    assert {m: rows["uniform", 2.0, m]["network_evaluations"] for m in costs} == costs
