"""The fast path changes no bit: what a device is asked together, states asked about once, chunks that fit."""

import collections
import math
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import truetilt as tt
from cases import MASKED, cases, run, same, text
from problems import table
from truetilt import checks, memory
from truetilt.checks import Questions, check, sites_where
from truetilt.logits import Last
from truetilt.models.score import NetScore
from truetilt.smc.sampler import Source, trace
from truetilt.smc.stream import Stream

WAITING = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_unique2", "unique_dim", "masked_select"}
HOST = {"schedules.py", "processes.py", "text.py"}  # read numbers of the host: no device is asked


@pytest.fixture
def as_on_a_device(monkeypatch):
    """The path of tensors that the host would have to wait for, taken by those of the CPU."""
    monkeypatch.setattr(checks, "_FREE", set())


class Waits(TorchDispatchMode):
    """Counts the operations that make the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.found = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        chosen = args[1] if name in ("index", "index_put", "index_put_") else ()
        if name in WAITING or any(i is not None and i.dtype == torch.bool for i in chosen):
            import traceback

            frames = [f for f in traceback.extract_stack() if "/truetilt/" in f.filename]
            where = Path(frames[-1].filename).name if frames else ""
            if where not in HOST:
                self.found[f"{name} {where}"] += 1
        return func(*args, **(kwargs or {}))


def steps(model):
    grid = tt.masked_fraction_grid(model.process.schedule, model.length)
    clock = tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie)
    return {"clock": (clock, tt.uniform_grid(6)), "any order": (tt.AnyOrder(model, 2.0), grid)}


@pytest.mark.parametrize("name", ["clock", "any order"])
@torch.no_grad()
def test_a_step_asks_a_device_once(name, as_on_a_device, monkeypatch):
    asked, settle = [], Questions.settle
    monkeypatch.setattr(Questions, "settle", lambda self, *counts: (asked.append(1), settle(self, *counts))[1])
    path = trace(*steps(text())[name], (1, 8), tt.adaptive(tt.systematic, 0.5), Source(Stream(0)))
    next(path)
    next(path)  # the first step asks whether all states are one
    for _ in range(3):
        asked.clear()
        with Waits() as waits:
            next(path)
        assert not waits.found
        assert len(asked) == 1


@torch.no_grad()
def test_the_counter_of_waits_sees_them():
    path = trace(*steps(text())["clock"], (1, 8), tt.adaptive(tt.systematic, 0.5), Source(Stream(0)))
    next(path)
    with Waits() as waits:
        next(path)
    assert sum(waits.found.values()) > 5  # on the CPU all questions are asked where they come up


@pytest.mark.parametrize("name", cases())
def test_asked_together_or_one_by_one_the_bits_are_the_same(name, monkeypatch):
    whole = run(name)
    monkeypatch.setattr(checks, "_FREE", set())
    assert same(run(name), whole)


def test_networks_give_the_same_bits_on_the_path_of_a_device(monkeypatch):
    options = {"particles": 10, "seed": 2, "resample": tt.systematic}
    whole = {name: tt.run(fk, grid, **options) for name, (fk, grid) in steps(text()).items()}
    monkeypatch.setattr(checks, "_FREE", set())
    for name, (fk, grid) in steps(text()).items():
        assert same(tt.run(fk, grid, **options), whole[name])


# errors that wait are raised all the same


@pytest.mark.parametrize(("value", "error"), [(math.nan, tt.InvalidWeights), (-math.inf, tt.DegenerateWeights)])
def test_a_bad_weight_is_raised_by_its_step_though_it_was_asked_about_later(value, error, as_on_a_device):
    fk = tt.Steered(MASKED.model(), lambda x, t: torch.full(x.shape[:-1], value if t < 0.45 else 0.0), 1.0)
    words = r"t = 0\.5.*0\.25|t = 0\.25" if error is tt.DegenerateWeights else r"t = 0\.25"
    with pytest.raises(error, match=words):
        tt.run(fk, tt.uniform_grid(4), particles=5)


def test_the_last_step_answers_for_itself(as_on_a_device):
    fk = tt.Steered(MASKED.model(), lambda x, t: torch.full(x.shape[:-1], math.nan if t == 0 else 0.0), 1.0)
    with pytest.raises(tt.InvalidWeights, match="t = 0"):
        tt.run(fk, tt.uniform_grid(4), particles=5)


def test_questions_wait_only_inside_and_their_first_problem_is_raised(as_on_a_device):
    bad, fine = torch.tensor(True), torch.tensor(False)
    with pytest.raises(KeyError):
        check(bad, KeyError)
    questions = Questions()
    questions.pending += [(fine, KeyError), (bad, LookupError), (bad, KeyError)]
    with pytest.raises(LookupError):
        questions.settle()
    with questions:
        assert [w.tolist() for w in sites_where(torch.tensor([[True, False], [True, True]]))] == [[0, 1, 1], [0, 0, 1]]
        check(bad, ValueError)  # after the count: waits for the next step
    with pytest.raises(ValueError), questions:  # noqa: PT011
        sites_where(torch.zeros(3, dtype=torch.bool))


def test_a_remembered_answer_is_of_the_very_same_tensors_unwritten():
    last, x = Last(), torch.arange(3)
    last.keep((x,), "yes")
    assert last.found((x,)) == "yes"
    assert last.found((x.clone(),)) is None
    x[0] = 5
    assert last.found((x,)) is None
    last.keep((x,), "yes")
    del x
    assert last._last == ([], None)  # nothing is kept alive


# states that are equal


class Counted:
    """A Score that counts the states it is asked about."""

    def __init__(self, score):
        self.score, self.states = score, 0

    def __call__(self, x, t):
        self.states += x[..., 0].numel()
        return self.score(x, t)


def test_distinct_states_are_asked_about_once_and_no_bit_changes():
    model, grid = table(tt.Masking, 3, 3, seed=4).model(), tt.masked_fraction_grid(MASKED.process.schedule, 3)
    counted = [Counted(score) for score in (model.base, model.conditional)]
    wrapped = tt.Model(model.process, 3, *map(tt.Distinct, counted), device="cpu")
    options = {"particles": 500, "seed": 1}
    plain, thrifty = (tt.run(tt.AnyOrder(m, 3.0), grid, **options) for m in (model, wrapped))
    assert torch.equal(plain.particles, thrifty.particles)
    assert torch.equal(plain.log_weights, thrifty.log_weights)
    assert counted[0].states == counted[1].states <= 1 + 9 + 27  # of 1500: the distinct states of each step


def test_a_score_that_answers_for_the_wrong_copies_would_show():
    """A wrong variant: the answers handed back in the order of the distinct states, not of those asked."""

    def careless(x, t):
        states = x.reshape(-1, x.shape[-1]).unique(dim=0)
        answer = model.base(states, t)
        which = torch.arange(x[..., 0].numel()).reshape(x.shape[:-1]) % len(states)
        return tt.SiteLogits(answer.store, answer.index[which])

    model, x = MASKED.model(), torch.tensor([[[0, 1, 3], [3, 3, 3], [0, 1, 3], [2, 3, 0]]])
    exact = model.base(x, 0.5).dense()
    assert torch.equal(tt.Distinct(model.base)(x, 0.5).dense(), exact)
    assert not torch.equal(careless(x, 0.5).dense(), exact)


class Net(torch.nn.Module):
    """Posterior logits that hang on the whole state; counts its rows."""

    def __init__(self):
        super().__init__()
        self.rows, self.line = 0, torch.nn.Linear(16, 16)

    def forward(self, x, t, label=None):
        self.rows += len(x)
        seen = torch.nn.functional.one_hot(x, 4).float().reshape(len(x), 16)
        return self.line(seen).reshape(len(x), 4, 4)[..., :3] + t[:, None, None]


def test_the_first_step_of_masking_asks_about_one_state():
    net = Net()
    score = NetScore(net, tt.Masking(3), batch=8)
    masks = torch.full((2, 40, 4), 3)
    first = score(masks, 1.0)
    assert net.rows == 8
    later = score(masks, 0.999)
    assert net.rows == 88
    assert torch.allclose(first.dense().log_softmax(-1), later.dense().log_softmax(-1), atol=1e-2)
    assert torch.equal(first.dense()[0, 0], first.dense()[1, 39])
    mixed = masks.clone()
    mixed[1, 7, 2] = 0
    assert torch.equal(score(mixed, 1.0).dense()[0, 0], first.dense()[0, 0])
    assert net.rows == 168


class Overwriting(Net):
    """A net that writes all its answers to one place, as a compiled one does."""

    def __init__(self):
        super().__init__()
        self.place = torch.empty(8, 4, 3)

    def forward(self, x, t, label=None):
        return self.place.copy_(super().forward(x, t, label))


def test_answers_of_one_batch_outlive_the_next(as_on_a_device):
    x = torch.randint(0, 4, (1, 20, 4), generator=torch.Generator().manual_seed(0))
    nets = [Net(), Overwriting()]
    nets[1].load_state_dict(nets[0].state_dict())
    exact, other = (NetScore(net, tt.Masking(3), batch=8)(x, 0.5).dense() for net in nets)
    assert torch.equal(exact, other)


# chunks


@pytest.mark.parametrize("name", ["clock", "any order", "gibbs"])
def test_a_chunk_that_fits_changes_no_bit(name, monkeypatch):
    whole = run(name)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8 * 24 * 3 * 2 * 5)  # five particles of a table
    assert memory.fitting_chunk(cases()[name][0], (1, 37), "cpu") == 5
    assert same(run(name, chunk="auto"), whole)


def test_chunks_are_whole_batches_where_one_fits(monkeypatch):
    fk = tt.AnyOrder(text(), 2.0)
    each = fk.model.base.particle_bytes
    for free, chunk in ((100, None), (11, 8), (4, 4), (3, 3), (0, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: 2 * free * each)
        assert memory.fitting_chunk(fk, (1, 50), "cpu") == chunk


def test_free_memory_is_what_the_machine_says():
    assert 2**20 < memory.free_bytes("cpu") < 2**50


@pytest.mark.parametrize("chunk", [0, "most", 1.5])
def test_bad_chunks_are_refused(chunk):
    with pytest.raises(tt.InvalidInput, match="chunk is"):
        run("clock", chunk=chunk)
