"""Rewards: any function of finished sequences, asked once a state, in workers, kept in a file; and what noise means."""

import contextlib
import itertools
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import reward_functions as functions
import truetilt as tt
from forked import on_ranks
from problems import table
from truetilt.core.fingerprints import alike, fingerprint
from truetilt.core.target import steered
from truetilt.rewards import answer_file
from truetilt.rewards.resumed_answers import Ledger

LETTERS = "ACGT"
ALL = torch.tensor(list(itertools.product(range(4), repeat=4)))
GGGG, ACGT = torch.tensor([[2, 2, 2, 2]]), torch.tensor([[0, 1, 2, 3]])


def refused(words, call):
    with pytest.raises(tt.InvalidInput, match=words) as caught:
        call()
    return caught.value


def seen_by(function):
    """The function, and the list of what it was given."""
    given = []

    def noted(x):
        given.extend([x] if isinstance(x, str) else x if isinstance(x, list) else map(tuple, x.tolist()))
        return function(x)

    return noted, given


def strings(function=functions.count_gc, **options):
    return tt.Reward(function, tokenizer=LETTERS, one_at_a_time=True, **options)


# what it is given and returns


def test_a_function_of_tokens_is_asked_once_about_each_state():
    noted, given = seen_by(functions.total)
    reward = tt.Reward(noted)
    x = torch.tensor([[1, 2], [3, 4], [1, 2], [0, 0]])
    found = reward(x)
    assert found.tolist() == [3.0, 7.0, 3.0, 0.0]
    assert found.dtype == torch.float64
    assert given == [(1, 2), (3, 4), (0, 0)]
    assert (reward.calls, reward.distinct) == (4, 3)
    assert reward(torch.tensor([[0, 0], [9, 9]]), 0.5).tolist() == [0.0, 18.0]
    assert given == [(1, 2), (3, 4), (0, 0), (9, 9)]
    assert (reward.calls, reward.distinct) == (6, 4)


@pytest.mark.parametrize(
    "spell",
    [LETTERS, lambda tokens: "".join(LETTERS[token] for token in tokens), type("Own", (), {
        "decode": lambda self, tokens: "".join(LETTERS[token] for token in tokens)})()],
    ids=["letters", "function", "decode"],
)  # fmt: skip
def test_a_function_of_strings(spell):
    noted, given = seen_by(functions.counts)
    assert tt.Reward(noted, tokenizer=spell)(torch.cat([ACGT, GGGG, ACGT])).tolist() == [2.0, 4.0, 2.0]
    assert given == ["ACGT", "GGGG"]
    alone = tt.Reward(functions.count_gc, tokenizer=spell, one_at_a_time=True)
    assert torch.equal(alone(ALL), tt.Reward(functions.counts, tokenizer=spell)(ALL))


def test_a_tokenizer_of_ours():
    tokenizer = tt.train_tokenizer(["the cat sat on the mat"], 300)
    tokens = tokenizer.encode("the cat")
    reward = tt.Reward(lambda texts: [len(text) for text in texts], tokenizer=tokenizer)
    assert reward(torch.tensor([tokens])).tolist() == [7.0]
    assert reward.vocabulary == tokenizer.vocabulary
    refused("masked or noised", lambda: reward(torch.full((1, len(tokens)), tokenizer.vocabulary)))


@pytest.mark.parametrize(
    "kind", [torch.Tensor.int, torch.Tensor.bool, torch.Tensor.float, torch.Tensor.numpy, torch.Tensor.tolist, tuple]
)
def test_answers_of_any_real_kind_are_numbers(kind):
    values = [0.0, 1.0, 1.0]
    reward = tt.Reward(lambda x: kind(torch.tensor(values)))
    assert reward(torch.tensor([[0], [1], [2]])).tolist() == values
    for single in (True, 1, np.float32(1), torch.tensor([1.0], requires_grad=True)):
        alone = tt.Reward(lambda x, single=single: single, one_at_a_time=True)
        assert alone(ACGT).tolist() == [1.0]


def test_a_function_may_spoil_what_it_is_given():
    x = ALL.clone()
    for options in ({}, {"cached": False}, {"noisy": True}):
        tt.Reward(lambda x: x.zero_().sum(-1), **options)(x)
        assert torch.equal(x, ALL)


def test_small_and_wide_tokens_and_other_whole_numbers():
    wide = torch.tensor([[70_000, 3], [5, 2**31 - 1]])
    assert tt.Reward(functions.total)(wide).tolist() == wide.sum(-1).tolist()
    narrow = tt.Reward(functions.total, vocabulary=256)
    assert narrow(torch.tensor([[255, 1], [0, 0]], dtype=torch.uint8)).tolist() == [256.0, 0.0]
    assert narrow.known()[0].tolist() == [[255, 1], [0, 0]]
    assert narrow(torch.empty((0, 2), dtype=torch.int64)).shape == (0,)


def test_without_a_cache_every_state_is_asked():
    noted, given = seen_by(functions.total)
    reward = tt.Reward(noted, cached=False)
    assert reward(torch.cat([ACGT, ACGT])).tolist() == [6.0, 6.0]
    assert len(given) == reward.calls == reward.distinct == 2
    for call in (reward.known, lambda: reward.remember(ACGT, [1.0]), lambda: reward.save("x")):
        refused("keeps no values", call)


def test_where_a_potential_is_due():
    problem = table(tt.Masking, 3, 2)
    reward = tt.Reward(functions.total, vocabulary=3)
    value = tt.Steered(problem.model(), reward, 2.0, ramp=tt.at_end)
    plain = tt.Steered(problem.model(), lambda x, t: x.sum(-1), 2.0, ramp=tt.at_end)
    grid = tt.uniform_grid(4)
    one, other = (tt.run(fk, grid, particles=64, seed=1) for fk in (value, plain))
    assert torch.equal(one.log_weights, other.log_weights)
    assert reward.distinct <= 9 < reward.calls == 64
    assert one.settings["model"]["reward"] == "Reward(total)"
    assert one.expectation(reward) == other.expectation(lambda x: x.sum(-1).double())
    refused("on the way use a twist", lambda: tt.run(tt.Steered(problem.model(), reward), grid, particles=8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_values_are_on_the_device_of_the_states():
    for options in ({}, {"cached": False}):
        seen = []
        reward = tt.Reward(lambda x, seen=seen: (seen.append(x.device.type), x.sum(-1))[1], **options)
        found = reward(ALL.cuda())
        assert found.device.type == "cuda"
        assert torch.equal(found.cpu(), ALL.sum(-1).double())
        assert seen == ["cuda"]


def test_all_forbidden_and_constant_rewards_are_rewards():
    assert tt.Reward(lambda x: torch.full((len(x),), -math.inf))(ALL).tolist() == [-math.inf] * 256
    reward = tt.Reward(lambda x: torch.full((len(x),), 3))
    assert reward(ALL).tolist() == [3.0] * 256
    assert reward(ALL).tolist() == [3.0] * 256
    assert reward.distinct == 256


# bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"function": "reward"}, "function is 'reward'"),
        ({"function": lambda: 0}, "cannot be"),
        ({"function": int}, "a class, not a function"),
        ({"tokenizer": "A"}, "two or more, each once"),
        ({"tokenizer": "ACCA"}, "two or more, each once"),
        ({"tokenizer": 3}, "tokenizer is 3"),
        ({"tokenizer": lambda a, b: ""}, "tokenizer is called with"),
        ({"one_at_a_time": "yes"}, "one_at_a_time is 'yes'"),
        ({"noisy": 2}, "noisy is 2"),
        ({"cached": None}, "cached is None"),
        ({"vocabulary": 0}, "vocabulary is 0"),
        ({"vocabulary": 5, "tokenizer": LETTERS}, "the tokenizer has 4"),
        ({"workers": -1}, "workers is -1"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": math.nan}, "timeout is nan"),
        ({"timeout": "1"}, "timeout is '1'"),
        ({"progress": print, "cache_file": 3}, "cache_file is 3"),
        ({"progress": lambda done: 0}, "progress is called with"),
        ({"noisy": True, "cache_file": "file"}, "keeps no values"),
        ({"function": lambda x: 0, "workers": 1}, "cannot be sent to a worker"),
        ({"function": lambda x: 0, "timeout": 1.0}, "cannot be sent to a worker"),
    ],
)
def test_junk_is_refused_where_a_reward_is_made(options, words):
    refused(words, lambda: tt.Reward(**({"function": functions.total} | options)))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(4, dtype=torch.int64), r"states \(4,\)"),
        (torch.zeros(1, 1, 4, dtype=torch.int64), r"states \(1, 1, 4\)"),
        (torch.zeros(2, 0, dtype=torch.int64), r"states \(2, 0\)"),
        (torch.zeros(2, 4), "float32"),
        (torch.zeros(2, 4, dtype=torch.bool), "bool"),
        ("ACGT", "'ACGT'"),
        (
            torch.tensor([[0, 1, 4, 2]]),
            "state 0 .*token 4 at site 2.*0 to 3.*finished sequences; .*use a twist",
        ),
        (torch.tensor([[0, 1, 1, 2], [0, 1, 1, -1]]), "state 1 .*token -1 at site 3"),
    ],
)
def test_states_that_are_no_finished_sequences(x, words):
    reward = strings()
    refused(words, lambda: reward(x))
    assert reward.calls == 0


def test_a_reward_is_about_states_of_one_length():
    reward = tt.Reward(functions.total)
    reward(ACGT)
    refused("knows states of 4 sites was given 2", lambda: reward(torch.tensor([[1, 2]])))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda x: x.sum(), r"a Tensor of shape \(\) for 2 sequences; return one number each, \[2\], or say one_at_a"),
        (lambda x: x, r"a Tensor of shape \(2, 4\)"),
        (lambda x: x.sum(-1, keepdim=True)[:1], r"a Tensor of shape \(1, 1\)"),
        (lambda x: [1.0], "a list of 1"),
        (lambda x: [1.0, "2"], "a list of 2"),
        (lambda x: [[1.0], [2.0]], "a list of 2"),
        (lambda x: None, "a NoneType"),
        (lambda x: "ab", "a str"),
        (lambda x: torch.ones(2, dtype=torch.complex64), "a Tensor"),
    ],
)
def test_a_wrong_shape_is_told(answer, told):
    refused(rf"\[0, 1, 2, 3\].*call 1.*returned {told}", lambda: tt.Reward(answer)(torch.cat([ACGT, GGGG])))


@pytest.mark.parametrize("answer", [None, "1", [1.0, 2.0], torch.ones(2), 1j])
def test_one_at_a_time_takes_one_number(answer):
    refused("return one number", lambda: tt.Reward(lambda x: answer, one_at_a_time=True)(ACGT))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_name_the_sequence_and_the_others_are_kept(value):
    noted, given = seen_by(lambda texts: [value if text == "GGGG" else 1.0 for text in texts])
    reward = tt.Reward(noted, tokenizer=LETTERS)
    words = rf"'GGGG' \(state 42 of its batch, counting from 0; call 43\): the function returned {value}; .*-inf"
    refused(words, lambda: reward(ALL[128:]))
    assert reward.distinct == len(reward.known()[0]) == 127
    given.clear()
    refused(rf"'GGGG' \(state 42 .*call 171\): the function returned {value}", lambda: reward(ALL[128:]))
    assert given == ["GGGG"]


def test_a_reward_that_raises_on_the_third_call_goes_on_from_there():
    given, broken = [], [True]

    def reward_of(text):
        if len(given) == 2 and broken:
            raise OSError("the laboratory is closed")
        given.append(text)
        return functions.count_gc(text)

    reward = strings(reward_of)
    error = refused(
        r"'AAAG' \(state 2 .*call 3\).*OSError: the laboratory is closed.*called again", lambda: reward(ALL)
    )
    assert isinstance(error.__cause__, OSError)
    assert (reward.calls, reward.distinct) == (256, 2)
    broken.clear()
    assert reward(ALL).tolist() == [functions.count_gc("".join(LETTERS[k] for k in row)) for row in ALL.tolist()]
    assert len(given) == len(set(given)) == 256
    assert (reward.calls, reward.distinct) == (512, 256)


def test_a_batch_that_raises_is_asked_one_by_one_to_name_the_sequence():
    def picky(texts):
        return [functions.raises_on_gggg(text) for text in texts]

    reward = tt.Reward(picky, tokenizer=LETTERS)
    refused(r"'GGGG' \(state 170 .*RuntimeError: no fold", lambda: reward(ALL))
    assert reward.distinct == 170
    reward = tt.Reward(lambda x: 1 / 0 if len(x) > 1 else x.sum(-1))
    refused(r"4 sequences, the first of them .*ZeroDivision.*of all together, of none alone", lambda: reward(ALL[:4]))
    assert reward(ALL[:4]).tolist() == [0.0, 1.0, 2.0, 3.0]
    refused("256 sequences, the first of them 'AAAA'", lambda: tt.Reward(picky, tokenizer=LETTERS, noisy=True)(ALL))


def test_a_tokenizer_that_fails_names_the_tokens():
    for options in ({}, {"workers": 1}):
        reward = tt.Reward(functions.counts, tokenizer=lambda tokens: 3, **options)
        refused(r"the tokens \[0, 1, 2, 3\].*the tokenizer made 3", lambda reward=reward: reward(ACGT))


def test_a_run_that_is_told_to_stop_stops():
    def told(x):
        raise tt.Stopped("saved")

    with pytest.raises(tt.Stopped):
        tt.Reward(told)(ACGT)


# workers


def test_workers_give_the_same_values_and_tell_how_far_they_are():
    told = []
    with_workers = strings(workers=2, progress=lambda done, total: told.append((done, total)))
    assert torch.equal(with_workers(ALL[:40]), strings()(ALL[:40]))
    assert told == [(k, 40) for k in range(1, 41)]
    in_batches = tt.Reward(functions.total, workers=2)
    assert torch.equal(in_batches(ALL), ALL.sum(-1).double())
    one = tt.Reward(functions.largest, one_at_a_time=True, workers=1)
    assert one(ACGT).tolist() == [3.0]
    timed = tt.Reward(functions.total, timeout=30.0)  # torch is imported before the clock starts
    assert timed(ALL[:3]).tolist() == [0.0, 1.0, 2.0]
    for reward in (with_workers, in_batches, one, timed):
        reward.close()
    assert torch.equal(with_workers(ALL[:50]), strings()(ALL[:50]))  # after close there are new ones
    with_workers.close()


def test_a_hanging_reward_is_ended_and_named_and_nothing_is_lost():
    reward = strings(functions.hangs_on_gggg, timeout=5.0)
    x = torch.cat([ACGT, GGGG, ALL[:3]])
    refused(r"'GGGG' \(state 1 .*call 2\).*took longer than 5 seconds", lambda: reward(x))
    assert reward.known()[0].tolist() == ACGT.tolist()
    assert reward(ALL[:3]).tolist() == [0.0, 1.0, 1.0]
    reward.remember(GGGG, [-math.inf])
    assert reward(x).tolist() == [2.0, -math.inf, 0.0, 1.0, 1.0]
    reward.close()


def test_others_finish_while_one_hangs():
    reward = strings(functions.hangs_on_gggg, workers=2, timeout=5.0)
    refused("'GGGG'", lambda: reward(torch.cat([GGGG, ALL[:9]])))
    assert len(reward.known()[0]) > 0
    reward.close()


def test_what_a_hanging_reward_started_is_ended_too(tmp_path, monkeypatch):
    monkeypatch.setenv("SLEEPER", str(tmp_path / "pid"))
    reward = strings(functions.starts_a_sleeper, timeout=5.0)
    refused("took longer", lambda: reward(ACGT))
    pid = int((tmp_path / "pid").read_text())
    for _ in range(1200):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("it still runs")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functions.raises_on_gggg, r"'GGGG'.*RuntimeError: no fold"),
        (functions.nan_on_gggg, "'GGGG'.*returned nan"),
        (functions.dies, r"ended its worker process \(exit code -9\)"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_told(function, words):
    reward = strings(function, workers=1)
    error = refused(words, lambda: reward(torch.cat([GGGG, ACGT])))
    assert ("Traceback" in "".join(getattr(error, "__notes__", ()))) == (function is functions.raises_on_gggg)
    if function is not functions.dies:
        assert reward(ACGT).tolist() == [2.0]
    reward.close()


def test_a_function_that_no_worker_can_import_is_told(monkeypatch):
    def here(text):
        return 0.0

    here.__qualname__ = here.__name__ = "here"
    monkeypatch.setitem(sys.modules, "only_here", type(sys)("only_here"))
    monkeypatch.setattr(sys.modules["only_here"], "here", here, raising=False)
    here.__module__ = "only_here"
    refused("cannot be loaded in a worker.*module that can be imported", lambda: strings(here, workers=1)(ACGT))


def test_an_interrupted_call_leaves_no_stale_answer():
    def interrupt(done, total):
        raise KeyboardInterrupt

    reward = strings(workers=2, progress=interrupt)
    with pytest.raises(KeyboardInterrupt) as held:  # and with it all frames
        reward(ALL[:20])
    assert held.value.__traceback__ is not None
    object.__setattr__(reward, "progress", None)
    assert torch.equal(reward(ALL.flip(0)), strings()(ALL.flip(0)))
    assert reward.distinct == len(reward.known()[0]) == 256
    reward.close()


def test_workers_end_with_the_reward():
    reward = strings(workers=1)
    reward(ACGT)
    process = reward._crew._crew[0].process
    del reward
    assert not process.is_alive()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_that_ends_the_program_is_an_error_of_bounded_length(workers):
    error = refused(
        "'ACGT' .* the function raised SystemExit: xxx", lambda: strings(functions.exits, workers=workers)(ACGT)
    )
    assert len(str(error)) < 1000
    assert all(len(note) < 20_000 for note in getattr(error, "__notes__", ()))


# the file


def test_known_states_are_saved_and_restored(tmp_path):
    reward = strings()
    reward(ALL.flip(0))
    states, values = reward.known()
    assert torch.equal(states, ALL.flip(0))
    noted, given = seen_by(functions.count_gc)
    other = strings(noted)
    other.load_cache(reward.save(tmp_path / "values.safetensors"))
    assert torch.equal(other(ALL), reward(ALL))
    assert (given, other.calls, other.distinct) == ([], 256, 0)
    assert torch.equal(other.known()[1], values)
    assert [path.name for path in tmp_path.iterdir()] == ["values.safetensors"]


def test_a_file_of_another_length_or_alphabet_is_refused(tmp_path):
    tt.Reward(functions.total).save(tmp_path / "empty")
    strings().load_cache(tmp_path / "empty")
    six = tt.Reward(functions.total)
    six(torch.tensor([[0, 1, 2, 3, 0, 5]]))
    six.save(tmp_path / "six")
    reward = strings()
    reward(ACGT)
    refused(
        "six does not fit this reward: .*knows states of 4 sites was given 6",
        lambda: reward.load_cache(tmp_path / "six"),
    )
    refused("six does not fit .*token 5", lambda: strings().load_cache(tmp_path / "six"))
    refused("is not there", lambda: reward.load_cache(tmp_path / "none"))
    refused("a folder", lambda: reward.load_cache(tmp_path))
    refused("a folder", lambda: strings(cache_file=tmp_path))


def test_remember():
    reward = strings()
    reward.remember(torch.cat([ACGT, GGGG]), [7, -math.inf])
    reward.remember(ACGT, torch.tensor([8.0]))
    assert reward(torch.cat([ACGT, GGGG])).tolist() == [7.0, -math.inf]
    assert (reward.calls, reward.distinct) == (2, 0)
    for values in ([1.0], [1.0, math.nan], [math.inf, 1.0], "ab"):
        refused("one number a state", lambda values=values: reward.remember(torch.cat([ACGT, GGGG]), values))
    refused("masked", lambda: reward.remember(ACGT + 1, [1.0]))


def test_a_cache_file_is_of_its_function(tmp_path):
    path = tmp_path / "values"
    strings(cache_file=path)(ACGT)
    assert strings(cache_file=path).known()[1].tolist() == [2.0]
    refused("another function", lambda: strings(functions.hangs_on_gggg, cache_file=path))
    other = strings(functions.hangs_on_gggg)
    other.load_cache(path)
    other.save(tmp_path / "adopted")
    assert other(ACGT).tolist() == [2.0]


def test_a_cache_file_is_written_as_values_come_and_an_error_loses_none(tmp_path):
    path = tmp_path / "values"
    reward = strings(functions.raises_on_gggg, cache_file=path)
    refused("'GGGG'", lambda: reward(ALL))
    assert len(strings(functions.raises_on_gggg, cache_file=path).known()[0]) == 170
    quick = strings(cache_file=tmp_path / "quick")
    for rows in ALL.split(2):
        quick(rows)
    del quick  # what was not due is written at the end
    assert len(strings(cache_file=tmp_path / "quick").known()[0]) == 256


def test_writing_takes_a_small_part_of_the_time(tmp_path, monkeypatch):
    clock, written = [0.0], []
    monkeypatch.setattr(answer_file.time, "monotonic", lambda: clock[0])
    begin = answer_file._begin

    def slowly(*arguments):
        clock[0] += 1.0
        written.append(clock[0])
        begin(*arguments)

    monkeypatch.setattr(answer_file, "_begin", slowly)

    def reward_of(text):
        clock[0] += 1.0
        return 0.0

    reward = strings(reward_of, cache_file=tmp_path / "values")
    reward(ALL[:100])
    assert len(written) in range(9, 13)


def test_processes_that_share_a_file_lose_no_answer(tmp_path):
    """Four at once, each with a quarter of the states, written in many pieces: none replaces what another wrote."""
    path = tmp_path / "values"

    def work(rank):
        reward = strings(cache_file=path)
        for rows in ALL[rank::4].split(2):
            reward(rows)
            reward._cache.keep(now=True)

    (tmp_path / "errors").mkdir()
    on_ranks(4, work, tmp_path / "errors")
    assert torch.equal(strings(cache_file=path)(ALL), strings()(ALL))
    assert len(strings(cache_file=path).known()[0]) == len(ALL)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["errors", "values"]


def test_a_writer_that_never_ends_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_file, "_WAIT", 0.1)
    monkeypatch.setattr(answer_file, "_PATIENCE", 0)
    reward = strings(cache_file=tmp_path / "values")
    reward(ACGT)
    with contextlib.closing(sqlite3.connect(tmp_path / "values", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="locked; the answers of the reward were not written"):
            reward.remember(GGGG, [1.0])
    reward.close()  # nothing is lost
    assert len(strings(cache_file=tmp_path / "values").known()[0]) == 2


def test_a_file_with_a_view_in_place_of_the_table_is_not_run(tmp_path):
    """A view may compute without end; it is refused for what it is, before it is asked for anything."""
    endless = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k FROM n) SELECT k, 1.0, NULL, 0 FROM n"
    with contextlib.closing(sqlite3.connect(tmp_path / "values", isolation_level=None)) as file:
        file.execute(f"CREATE VIEW answers AS {endless}")
        file.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT)")
    refused("holds no values of a reward", lambda: strings(cache_file=tmp_path / "values"))
    refused("holds no values of a reward", lambda: strings().load_cache(tmp_path / "values"))


SCRIPT = """
import sys, torch
import truetilt as tt
import reward_functions as functions
options = {"tokenizer": "ACGT", "one_at_a_time": True, "cache_file": sys.argv[1], "workers": int(sys.argv[2])}
reward = tt.Reward(functions.slow, **options)
if __name__ == "__main__":
    reward(torch.cartesian_prod(*[torch.arange(4)] * 4)[:30])
"""


def settled(log):
    """Lines of a log that nobody writes any more: a worker notices that its run is gone, and ends."""
    count, waited = -1, 0
    while count != (now := len(log.read_text().splitlines())) and waited < 60:
        count, waited = now, waited + 1
        time.sleep(2.0)
    return count


@pytest.mark.parametrize("workers", [0, 1])
def test_a_killed_run_goes_on_from_its_file(workers, tmp_path, monkeypatch):
    path, log, script = tmp_path / "values", tmp_path / "log", tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = [str(Path(__file__).parent), str(Path(tt.__file__).parents[1])]
    monkeypatch.setenv("REWARD_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    command = [sys.executable, str(script), str(path), str(workers)]
    killed = subprocess.Popen(command)
    while killed.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 8):
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    before = settled(log)
    assert before < 30
    reward = strings(functions.slow, cache_file=path)
    kept = len(reward.known()[0])
    assert kept >= 1
    assert torch.equal(reward(ALL[:30]), strings()(ALL[:30]))
    assert len(log.read_text().splitlines()) == before + 30 - kept
    assert (reward.calls, reward.distinct) == (30, 30 - kept)


@pytest.mark.parametrize("seed", range(60))
def test_a_broken_cache_file_is_refused_in_words_and_left_alone(seed, tmp_path):
    path, chance = tmp_path / "values", random.Random(seed)
    reward = strings(cache_file=path)
    reward(ALL)
    reward.close()
    del reward
    whole = bytearray(path.read_bytes())
    kind = seed % 4
    if kind == 0:
        broken = whole[: chance.randrange(len(whole))]
    elif kind == 1:
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        broken = whole
    elif kind == 2:
        broken = chance.randbytes(chance.randrange(200))
    else:
        place = chance.randrange(len(whole))
        broken = whole[:place] + chance.randbytes(chance.randrange(1, 40)) + whole[place:]
    path.write_bytes(broken)
    with contextlib.suppress(tt.InvalidInput):  # or a byte of the header was changed that says nothing
        assert torch.equal(strings(cache_file=path)(ALL), strings()(ALL))
        return
    refused(re.escape(str(path)), lambda: strings(cache_file=path))
    assert path.read_bytes() == bytes(broken)


# what it is to others


def test_the_fingerprint_is_of_the_function_and_not_of_what_was_called(tmp_path):
    model = table(tt.Masking, 4, 4).model()
    used = strings(cache_file=tmp_path / "values", progress=lambda done, total: None)
    used(ALL)
    assert fingerprint(used) == fingerprint(strings()) == fingerprint(strings(workers=2))
    assert alike(used, strings())
    assert steered(model, used, 1.0).differences(steered(model, strings(), 1.0), True) == []
    others = [
        strings(functions.raises_on_gggg),
        tt.Reward(functions.count_gc, tokenizer="ACTG", one_at_a_time=True),
        tt.Reward(functions.count_gc, tokenizer=LETTERS),
        strings(noisy=True),
        strings(lambda text: functions.count_gc(text)),
    ]
    assert len({fingerprint(reward) for reward in (used, *others)}) == 6
    assert not any(alike(used, reward) for reward in others)
    words = [tt.train_tokenizer([text], 300) for text in ("the cat sat", "a dog ran away")]
    first, second = (tt.Reward(functions.counts, tokenizer=tokenizer, vocabulary=257) for tokenizer in words)
    assert fingerprint(first) != fingerprint(second)


def test_threads_take_turns_and_no_state_is_asked_twice():
    given = []

    def reward_of(text):
        given.append(text)
        time.sleep(0.001)
        return functions.count_gc(text)

    reward, found = strings(reward_of), []
    threads = [threading.Thread(target=lambda: found.append(reward(ALL[:64]))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == reward.distinct == 64
    assert reward.calls == 6 * 64
    assert all(torch.equal(values, strings()(ALL[:64])) for values in found)


# what noise means

P0 = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
MEASURED = torch.tensor([[0.2, -1.0], [1.0, 0.0], [-0.5, 1.5]], dtype=torch.float64)  # two outcomes a state, alike


def effective(strength):
    """p0(x) times the mean of exp(strength r) over the noise."""
    return P0 * (strength * MEASURED).exp().mean(-1)


def metropolis(strength, fresh):
    """The chain of (state, its number): from p0 with a fresh number, accepted by the kept one or by a fresh one."""
    chain = torch.zeros(3, 2, 3, 2, dtype=torch.float64)
    for x, kept, y, new in itertools.product(range(3), range(2), range(3), range(2)):
        for compared in range(2) if fresh else (kept,):
            chance = P0[y] / 2 / (2 if fresh else 1)
            accept = min(1.0, math.exp(strength * float(MEASURED[y, new] - MEASURED[x, compared])))
            chain[x, kept, y, new] += chance * accept
            chain[x, kept, x, compared] += chance * (1 - accept)
    return chain.reshape(6, 6)


def stationary(chain):
    return torch.linalg.matrix_power(chain, 4096)[0].reshape(3, 2).sum(-1)


def test_moves_that_keep_the_number_have_the_mean_law_and_those_that_ask_again_have_none_of_them():
    """Pseudo-marginal Metropolis, written out: exact on pairs of a state and its number."""
    law = effective(2.0) / effective(2.0).sum()
    pairs = (P0[:, None] / 2 * (2.0 * MEASURED).exp()).reshape(-1)
    torch.testing.assert_close(pairs @ metropolis(2.0, fresh=False), pairs, rtol=0, atol=1e-12)
    torch.testing.assert_close(stationary(metropolis(2.0, fresh=False)), law, rtol=0, atol=1e-9)
    of_means = P0 * (2.0 * MEASURED.mean(-1)).exp()
    again = stationary(metropolis(2.0, fresh=True))
    assert float((again - law).abs().sum()) / 2 > 0.02
    assert float((again - of_means / of_means.sum()).abs().sum()) / 2 > 0.02


@pytest.mark.parametrize("ramp", [tt.at_end, tt.Power(1.0)], ids=["at the end", "on the way"])
def test_a_noisy_reward_weighs_by_its_mean_exponential(ramp):
    """Steered keeps the number a particle was weighed by, whatever it asked on the way."""
    dice, process = np.random.default_rng(3), tt.Masking(3)
    numbers = torch.cat([MEASURED, torch.tensor([[0.3, -0.3]])])  # of the mask too
    reward = tt.Reward(lambda x: numbers[x[:, 0], torch.from_numpy(dice.integers(2, size=len(x)))], noisy=True)
    base = tt.PosteriorScore(process, lambda x, t: P0.log().expand(*x.shape, 3))
    value = tt.Steered(tt.Model(process, 1, base), reward, 2.0, ramp=ramp)
    result = tt.run(value, tt.uniform_grid(4), particles=4000, populations=10, seed=0)
    exact = effective(2.0)
    assert reward.calls == reward.distinct == 40_000 * (1 if ramp is tt.at_end else 4)
    assert result.log_z == pytest.approx(float(exact.sum().log()), abs=0.05)
    share = [float(result.expectation(lambda x, k=k: (x[:, 0] == k).double())) for k in range(3)]
    assert share == pytest.approx((exact / exact.sum()).tolist(), abs=0.03)


def test_states_are_spelt_as_the_function_reads_them():
    reward = tt.Reward(len, tokenizer="ACGT", one_at_a_time=True)
    assert reward.spell(torch.tensor([[0, 1, 2, 3], [3, 3, 0, 0]])) == ["ACGT", "TTAA"]
    assert reward.calls == 0
    with pytest.raises(tt.InvalidInput, match="masked or noised"):
        reward.spell(torch.tensor([[0, 1, 2, 4]]))
    with pytest.raises(tt.InvalidInput, match="has no tokenizer"):
        tt.Reward(lambda x: x.sum(-1)).spell(torch.tensor([[0, 1]]))


# a call that goes on


def test_answers_of_an_interrupted_call_are_counted_when_they_are_asked_for_and_not_asked_again(tmp_path):
    """What was known when the call began stays free."""
    noted, given = seen_by(functions.count_gc)
    reward = strings(noted)
    reward(ALL[:2])
    ledger = Ledger(reward, tmp_path)
    ledger.begin()
    with ledger:
        reward(ALL[:10])
    with contextlib.closing(sqlite3.connect(tmp_path / "answers.sqlite")) as file, file:
        file.execute("DELETE FROM answers WHERE rowid = 10")  # the last one was not written
    again = strings(noted, cache_file=tmp_path / "file")
    ledger = Ledger(again, tmp_path)
    assert ledger.answers == 7
    with ledger:
        assert (again.calls, again.distinct, len(again.known()[0])) == (0, 0, 2)
        again(ALL[:2])
        assert again.distinct == 0
        assert torch.equal(again(ALL[:6]), reward(ALL[:6]))
        assert (again.distinct, len(given), len(again.known()[0])) == (4, 10, 6)
        again(ALL[9:11])
        assert (again.distinct, len(given)) == (6, 12)
        again.close()
        whole = strings()
        whole.load_cache(tmp_path / "file")
        assert len(whole.known()[0]) == 11  # the file holds all
        assert len(again.known()[0]) == 8
    assert (again.distinct, len(again.known()[0])) == (6, 11)
    assert Ledger(again, tmp_path).answers == 9
