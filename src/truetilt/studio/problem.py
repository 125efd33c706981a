"""A problem: a model under its condition, its view, and the Python and the command that make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import continuous
from ..exact.tables import Table
from ..viz.views import View
from ..viz.words import is_veiled


class SampleCall(NamedTuple):
    """What `truetilt sample` is given for a problem: the model it names, and the options it needs."""

    model: str
    options: Mapping[str, Any]


class Problem(NamedTuple):
    """A model under its condition."""

    name: str
    model: Any  # Model, or Diffusion for real vectors
    view: View | None
    python: str  # lines that make `model`
    exact: Table | continuous.Observed | None = None
    command: SampleCall | None = None
    prepare: str = ""  # a line for the shell before the command
    look: str = ""  # the view in Python
    chunk: int | None = None
    condition: str | int | None = None
    net: str | None = None  # the kind of a net that is no bundle, for the record
    lacks: str = ""  # what `truetilt sample` does not support, where there is no command

    @property
    def reals(self) -> bool:
        return isinstance(self.exact, continuous.Observed)

    @property
    def veiled(self) -> bool:
        """Whether its texts are shown only to those who ask."""
        return self.view is not None and self.view.shape == "text" and is_veiled(self.condition)

    def freed(self) -> Problem:
        """What the page still shows, without networks and off the device."""
        exact = self.exact
        if isinstance(exact, Table):
            exact = Table(exact.process, exact.p0.cpu(), exact.likelihood.cpu())
        elif exact is not None:
            exact = exact.to("cpu")
        return self._replace(model=None, exact=exact)
