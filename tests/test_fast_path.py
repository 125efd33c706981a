"""The fast path changes no bit: what a device is asked together, states asked about once, chunks that fit."""

import collections
import functools
import gc
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

import truetilt as tt
from cases import MASKED, cases, run, same, text
from problems import table
from truetilt.core import evaluation as checks
from truetilt.core.evaluation import Batch, PendingCheck, RunLog, check, evaluate_all, sites_where
from truetilt.core.logits import Sites
from truetilt.core.types import SiteOdds
from truetilt.diffusion import kernels
from truetilt.diffusion.processes import log1mexp
from truetilt.models.net_score import NetScore
from truetilt.models.text_score import sites_read
from truetilt.runtime import memory, run_plan
from truetilt.smc.sampler import Source, Stream, run_steps
from truetilt.targets.on_clock import Proposal

WAITING = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_unique2", "unique_dim", "masked_select"}
PACKAGE = Path(tt.__file__).parent  # wherever it lies: a clone may be called truetilt too
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

            frames = [f for f in traceback.extract_stack() if Path(f.filename).is_relative_to(PACKAGE)]
            where = Path(frames[-1].filename).name if frames else ""
            if where not in HOST:
                self.found[f"{name} {where}"] += 1
        return func(*args, **(kwargs or {}))


def two_runs(model):
    grid = tt.masked_fraction_grid(model.process.schedule, model.length)
    clock = tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie)
    return {"clock": (clock, tt.uniform_grid(6)), "any order": (tt.AnyOrder(model, 2.0), grid)}


def path_of(name):
    """A run that is past its first step, which asks whether all states are one."""
    path = run_steps(*two_runs(text())[name], (1, 8), tt.adaptive(tt.systematic, 0.5), Source(Stream(0)))
    next(path)
    next(path)
    return path


@pytest.fixture
def asked(as_on_a_device, monkeypatch):
    """A line for each time that the host waits for numbers, and for what begins before it does."""
    told, sent = [], checks._sent

    def counted(numbers):
        told.append("sent")
        read = sent(numbers)
        return lambda: (told.append("read"), read())[1]

    monkeypatch.setattr(checks, "_sent", counted)
    trunk = tt.SEDD.trunk
    monkeypatch.setattr(tt.SEDD, "trunk", lambda *args: (told.append("trunk"), trunk(*args))[1])
    return told


@pytest.mark.parametrize("name", ["clock", "any order"])
@torch.no_grad()
def test_a_step_asks_a_device_once(name, asked):
    path = path_of(name)
    for _ in range(3):
        asked.clear()
        with Waits() as waits:
            next(path)
        assert not waits.found
        assert asked.count("sent") == asked.count("read") == 1


@torch.no_grad()
def test_the_host_waits_when_the_device_has_work(asked):
    """The trunks are begun before the count is waited for; without a count, answers are read a step later."""
    path = path_of("clock")
    asked.clear()
    next(path)
    assert asked == ["sent", *["trunk"] * 4, "read"]  # two networks, two batches
    path = path_of("any order")
    asked.clear()
    next(path)
    assert asked == [*["trunk"] * 4, "sent", "read"]
    log, bad = RunLog(), torch.tensor(True)
    log.begin_step()
    check(bad, ValueError, log)
    log.end_step(last=False)
    with pytest.raises(ValueError):  # noqa: PT011
        log.end_step(last=False)


@torch.no_grad()
def test_the_counter_of_waits_sees_them():
    path = run_steps(*two_runs(text())["clock"], (1, 8), tt.adaptive(tt.systematic, 0.5), Source(Stream(0)))
    next(path)
    with Waits() as waits:
        next(path)
    assert sum(waits.found.values()) > 5  # on the CPU all checks are made where they come up


def moving(change=lambda score: score):
    """Runs with moves: annealing by each kind of kernel, and moves between steps; `change` is made to the scores."""
    model = MASKED.model()
    model = replace(model, base=change(model.base), conditional=change(model.conditional))
    plain = tt.Composed(model, reward=total)
    against = replace(plain, conditions=[(model.conditional, -0.5)])  # asks for the support of the base
    twisted = replace(plain, twist=lambda x, t: total(x))
    kernels = {
        "gibbs": (tt.Gibbs, against),
        "metropolis": (tt.Metropolis, against),
        "surrogate": (functools.partial(tt.Metropolis, surrogate=lambda x, t: total(x)), against),
        "block": (functools.partial(tt.Block, size=2), against),
        "block, surrogate": (functools.partial(tt.Block, size=2, surrogate=lambda x, t: total(x)), against),
        "pair": (tt.Pair, against),
        "whole": (functools.partial(tt.WholeSequence, log_prob=log_p0, proposal=model.base), plain),
    }
    annealed = {name: tt.Annealed(goal, 4, kernel=kernel, reveal_steps=1) for name, (kernel, goal) in kernels.items()}
    runs = {name: (fk, fk.grid, None) for name, fk in annealed.items()}
    tilted = tt.Tilted(model, 3.0, kernel=tt.tweedie)
    runs["gibbs in clock time"] = tilted, tt.uniform_grid(6), tt.Rejuvenation(tt.Gibbs(tilted), each_step=1)
    runs["gibbs in any order"] = twisted, twisted.grid, tt.Rejuvenation(tt.Gibbs(twisted), each_step=1)
    return runs


def total(x):
    return x.sum(-1).double()


def log_p0(x):
    return MASKED.p0[tuple(x.unbind(-1))].log()


@pytest.mark.parametrize("name", moving())
@torch.no_grad()
def test_no_check_of_a_step_with_moves_is_answered_at_once(name, as_on_a_device):
    fk, grid, moves = moving()[name]
    path = run_steps(fk, grid, (1, 8), tt.adaptive(tt.systematic, 0.5), Source(Stream(0)), moves)
    next(path)
    with Waits() as waits:
        next(path)
        next(path)
    assert not [where for where in waits.found if where.endswith(" device.py")]


def spoilt(score):
    """A score that is NaN for states with one masked site, about which moves ask."""

    def ask(x, t):
        found = score(x, t)
        bad = ((x == MASKED.process.mask).sum(-1) == 1)[..., None, None]
        return tt.SiteLogits.of(torch.where(bad, math.nan, found.dense()))

    return ask


@pytest.mark.parametrize("name", moving())
def test_moves_report_a_nan_in_the_same_words_though_they_ask_later(name, monkeypatch):
    fk, grid, moves = moving(spoilt)[name]
    words = []
    for free in ({"cpu"}, set()):
        monkeypatch.setattr(checks, "_FREE", free)
        with pytest.raises(tt.InvalidWeights, match=r"t = .* score returned NaN") as error:
            tt.run(fk, grid, particles=5, moves=moves)
        words.append(str(error.value))
    assert words[0] == words[1]


def test_a_surrogate_that_is_nan_is_reported_with_the_time_of_its_move(as_on_a_device):
    fk = tt.Tilted(MASKED.model(), 3.0, kernel=tt.tweedie)
    kernel = tt.Metropolis(fk, surrogate=lambda x, t: torch.full(x.shape[:-1], math.nan if t < 0.45 else 0.0))
    with pytest.raises(tt.InvalidWeights, match=r"NaN for \d+ of \d+ states at t = 0\.25"):
        tt.run(fk, tt.uniform_grid(4), particles=5, moves=tt.Rejuvenation(kernel, each_step=1))


@pytest.mark.parametrize("kernel", [tt.Gibbs, tt.Metropolis, tt.Pair])
def test_a_scan_that_leaves_the_sequence_is_named_though_it_was_asked_about_later(kernel, as_on_a_device):
    """Until then no tensor is indexed outside, which would end the process of a GPU."""
    fk = tt.Annealed(tt.Composed(MASKED.model(), reward=total), 4, kernel=functools.partial(kernel, scan=beyond))
    with pytest.raises(tt.InvalidInput, match="the scan named a site outside 0 to 2"):
        tt.run(fk, particles=5)


def beyond(revealed, number, u):
    return torch.full_like(u, 3, dtype=torch.int64)


class Mixed(TorchDispatchMode):
    """Finds operations on numbers of the host and tensors of a device, which a device would have to be handed first.

    All of it runs on the CPU. Of the host are single numbers that were there before, what is made of Python's numbers
    or with no device named, and what is made of those alone; not what a stream sends, which no one waits for.
    """

    def __init__(self, monkeypatch):
        super().__init__()
        self.found, self.of_host, sent = collections.Counter(), WeakIdKeyDictionary(), torch.from_numpy
        for there in gc.get_objects():
            if issubclass(type(there), torch.Tensor):
                self.of_host[there] = there.dim() == 0
        monkeypatch.setattr(torch, "from_numpy", lambda array: self.device(sent(array)))

    def device(self, tensor):
        self.of_host[tensor] = False
        return tensor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, given = func.overloadpacket.__name__, [t for t in tree_leaves((args, kwargs)) if torch.is_tensor(t)]
        on_host = [self.of_host.get(t, True) for t in given]
        if any(on_host) and not all(on_host):
            self.found[name] += 1
        made = all(on_host) if given else (kwargs or {}).get("device") is None
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if torch.is_tensor(tensor) and not any(tensor is t for t in given):
                self.of_host[tensor] = made
        return out


@pytest.mark.parametrize("name", ["clock", "any order"])
@torch.no_grad()
def test_no_number_of_the_host_meets_a_tensor_of_the_device(name, as_on_a_device, monkeypatch):
    path = path_of(name)
    with Mixed(monkeypatch) as mixed:
        next(path)
        mixed.found.clear()  # what the step before left to ask was made unseen
        next(path)
        next(path)
    assert not mixed.found


def by_scalar_tensors(self, log_score, x, t, s):
    """A wrong variant: `where` takes numbers of the host as tensors, and a device waits to be handed each."""
    stay = log1mexp(self.schedule(s).value) - log1mexp(self.schedule(t).value)
    movable, posterior = x == self.mask, self.posterior(log_score, x, t)
    hold = torch.where(movable, stay + posterior.flaws(), 0.0)
    return SiteOdds(posterior, hold, torch.where(movable, log1mexp(-stay), -math.inf))


def by_unravelling(mask, log=None, meanwhile=None):
    """Another: `unravel_index` makes tensors of the shape."""
    flat = mask.reshape(-1).to(torch.uint8).argsort(descending=True, stable=True)[: int(mask.sum())]
    return torch.unravel_index(flat, mask.shape)


@pytest.mark.parametrize("wrong", ["where", "unravel"])
@torch.no_grad()
def test_what_hands_numbers_to_a_device_is_found(wrong, as_on_a_device, monkeypatch):
    path = path_of("clock")
    if wrong == "where":
        monkeypatch.setattr(tt.Masking, "bridge", by_scalar_tensors)
    else:
        monkeypatch.setattr(kernels, "sites_where", by_unravelling)
    with Mixed(monkeypatch) as mixed:
        next(path)
        mixed.found.clear()
        next(path)
    assert mixed.found


@pytest.mark.parametrize("name", cases())
def test_asked_together_or_one_by_one_the_bits_are_the_same(name, monkeypatch):
    whole = run(name)
    monkeypatch.setattr(checks, "_FREE", set())
    assert same(run(name), whole)


def test_networks_give_the_same_bits_on_the_path_of_a_device(monkeypatch):
    options = {"particles": 10, "seed": 2, "resample": tt.systematic}
    whole = {name: tt.run(fk, grid, **options) for name, (fk, grid) in two_runs(text()).items()}
    monkeypatch.setattr(checks, "_FREE", set())
    for name, (fk, grid) in two_runs(text()).items():
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


def test_checks_wait_only_inside_and_their_first_problem_is_raised(as_on_a_device):
    bad, fine = torch.tensor(True), torch.tensor(False)
    with pytest.raises(KeyError):
        check(bad, KeyError)
    log = RunLog()
    with pytest.raises(KeyError):
        check(bad, KeyError, log)  # no step has begun: nobody would read it
    log.begin_step()
    log.waiting += [PendingCheck(fine, KeyError), PendingCheck(bad, LookupError), PendingCheck(bad, KeyError)]
    with pytest.raises(LookupError):
        log.end_step(last=True)
    log.begin_step()
    found = sites_where(torch.tensor([[True, False], [True, True]]), log)
    assert [where.tolist() for where in found] == [[0, 1, 1], [0, 0, 1]]
    check(bad, ValueError, log)  # after the count: waits for the next step
    log.end_step(last=False)
    log.begin_step()
    with pytest.raises(ValueError):  # noqa: PT011
        sites_where(torch.zeros(3, dtype=torch.bool), log)


class Wrapped(tt.Tempered):
    """Somebody's own target, made of the law of another's proposal."""

    def propose(self, x, t, s):
        return Proposal(super().propose(x, t, s).law)


@pytest.mark.parametrize("kind", [tt.Tempered, Wrapped])
@pytest.mark.parametrize("flawed", ["base", "conditional"])
@pytest.mark.parametrize("free", [{"cpu"}, set()], ids=["host", "device"])
def test_laws_that_are_checked_together_name_the_score_that_is_nan(kind, flawed, free, monkeypatch):
    monkeypatch.setattr(checks, "_FREE", free)

    def spoilt(x, t):
        found = getattr(MASKED.model(), flawed)(x, t)
        return found if t > 0.6 else found.map(lambda rows: rows * math.nan)

    model = replace(MASKED.model(), **{flawed: spoilt})
    with pytest.raises(tt.InvalidWeights, match=rf"t = 0\.5 -> 0\.25: the {flawed} score returned NaN.* of 5"):
        tt.run(kind(model, 2.0, kernel=tt.tweedie), tt.uniform_grid(4), particles=5)


def test_a_batch_works_out_once_what_its_scores_share():
    batch, process = Batch(torch.arange(6).reshape(2, 3)), tt.Masking(3)
    assert sites_read(process, batch).index is sites_read(process, batch).index
    assert not Batch(batch.x).known  # another batch knows nothing of it


def test_base_and_conditional_share_an_index_and_so_the_rows_they_read():
    model = text()
    x = torch.randint(0, 12, (2, 4, 6), generator=torch.Generator().manual_seed(0))
    base, conditional = evaluate_all(model, x, 0.5, base=model.base, conditional=model.conditional)
    assert base.index is conditional.index
    sites = Sites(torch.zeros(2, 4, 1, dtype=torch.int64))
    assert sites.rows(base.index).numbers is sites.rows(conditional.index).numbers
    apart = model.base(x, 0.5), model.conditional(x, 0.5)  # asked alone, each makes a batch of its own
    assert apart[0].index is not apart[1].index
    assert torch.equal(apart[0].dense(), base.dense())
    assert torch.equal(apart[1].dense(), conditional.dense())


def drawn_law(log=None):
    """A law, and the states that it drew."""
    law = tt.tweedie(MASKED.process, MASKED.model().base(x := torch.full((1, 5, 3), 3), 0.9), x, 0.9, 0.2)
    law = replace(law, log=log)
    return law, law.sample(torch.linspace(0, 0.999, 15, dtype=torch.float64).reshape(1, 5, 3))


def test_a_step_knows_which_sites_it_drew_and_looks_for_those_of_other_states():
    log = RunLog()
    log.begin_step()
    law, y = drawn_law(log)
    drawn, looked = law.changed(y), law.changed(y.clone())
    assert drawn is not looked
    assert law.changed(y) is drawn
    assert [w.tolist() for w in drawn.where] == [w.tolist() for w in looked.where]
    assert torch.equal(law.log_prob(y), law.log_prob(y.clone()))
    log.end_step(last=False)
    assert law.changed(y) is not drawn  # the next step knows nothing of it


def test_a_law_by_itself_remembers_no_draw():
    """States that are changed after they were drawn have the probability of what they are now."""
    law, y = drawn_law()
    y[0, 0] = 1
    assert torch.equal(law.log_prob(y), law.log_prob(y.clone()))
    assert law.log_prob(y).isfinite().all()


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
    monkeypatch.setattr(run_plan, "check_room", lambda *_: None)  # though the record of the run takes more
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
