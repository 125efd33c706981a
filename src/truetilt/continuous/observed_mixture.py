"""The exact answer for diffusions: an observed Gaussian mixture, with the interface of a network.

Scores, p_t(zeta|x), the tempered target, its draws, its log Z and its own true drift are all closed-form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from ..core.arguments import device_here, shown
from ..core.errors import InvalidInput
from ..core.types import State
from ..targets.potentials import check_alpha
from .kernels import Score
from .mixtures import GaussianMixture, Observation
from .models import Diffusion
from .processes import Process, check_noise


@dataclass(frozen=True)
class Observed:
    """A problem with exact answers: $p0$ a mixture of Gaussians and $p(zeta|x)$ an observation, noised by a process.

    Args:
        process: How data are noised: `tt.continuous.VP()`, `VE()` or `SubVP()`.
        p0: The law of the data, a `tt.continuous.GaussianMixture`.
        seen: What was observed, a `tt.continuous.Observation`.
    """

    process: Process
    p0: GaussianMixture
    seen: Observation

    def __post_init__(self) -> None:
        check_noise(self.process)
        if not isinstance(self.p0, GaussianMixture):
            raise InvalidInput(f"p0 is {shown(self.p0)}; give a continuous.GaussianMixture")
        _ = self.conditional_law  # raises for coordinates that do not exist

    @cached_property
    def _given(self) -> tuple[GaussianMixture, float]:
        return self.p0.given(self.seen)

    @property
    def conditional_law(self) -> GaussianMixture:
        """$p0(x|zeta)$."""
        return self._given[0]

    @property
    def log_evidence(self) -> float:
        """$log p(zeta)$."""
        return self._given[1]

    def noised(self, law: GaussianMixture, t: float) -> GaussianMixture:
        """A law of clean states, noised to t."""
        return law.noised(self.process.mean(t), self.process.std(t))

    def base(self, x: State, t: float) -> Tensor:
        """$grad log p_t(x)$."""
        return self.noised(self.p0, t).score(x)

    def conditional(self, x: State, t: float) -> Tensor:
        """$grad log p_t(x|zeta)$."""
        return self.noised(self.conditional_law, t).score(x)

    def potential(self, x: State, t: float) -> Tensor:
        """$log p_t(zeta|x)$, by Bayes."""
        if t == 0:
            return self.seen.log_likelihood(x)
        log_joint = self.log_evidence + self.noised(self.conditional_law, t).log_prob(x)
        return log_joint - self.noised(self.p0, t).log_prob(x)

    def model(self) -> Diffusion:
        """The diffusion model to sample."""
        device = self.p0.means.device
        return Diffusion(self.process, self.p0.dimension, self.base, self.conditional, self.potential, device)

    def target(self, alpha: float) -> GaussianMixture:
        """$pi ~ p0(x) p(zeta|x)^alpha$, again a mixture."""
        return self._tempered(alpha)[0]

    def log_z(self, alpha: float) -> float:
        """$log E_p0[p(zeta|x)^alpha]$."""
        return self._tempered(alpha)[1]

    def log_z_tempered(self, alpha: float) -> float:
        """The constant that edge weights estimate: $log E_p0[p(zeta|x)^alpha] - alpha log p(zeta)$."""
        return self.log_z(alpha) - check_alpha(alpha) * self.log_evidence

    def log_z_tilted(self, alpha: float) -> float:
        """The constant that the tilted conditional estimates: $log E_p0[p(zeta|x)^alpha] - log p(zeta)$."""
        return self.log_z(alpha) - self.log_evidence

    def true_tempered(self, alpha: float) -> Score:
        """The score whose reverse diffusion ends in the target: $grad log p_t(x) E[p(zeta|X_0)^alpha | x]$."""
        target = self.target(alpha)
        return lambda x, t: self.noised(target, t).score(x)

    def prior_gap(self, alpha: float = 1.0) -> float:
        """The error of the first draw: the KL divergence of the prior from the target noised to $t = 1$.

        The noised target is approximated by the Gaussian of its moments, accurate at so much noise.
        """
        mean, covariance = self.noised(self.target(alpha), 1.0).moments()
        start = MultivariateNormal(
            torch.zeros_like(mean), torch.eye(len(mean)).to(mean) * self.process.prior((1,)).std ** 2
        )
        return float(kl_divergence(start, MultivariateNormal(mean, covariance)))

    def to(self, device: torch.device | str) -> Observed:
        device_here(device)
        law = GaussianMixture(
            self.p0.weights.to(device), self.p0.means.to(device), torch.as_tensor(self.p0.std).to(device)
        )
        return replace(self, p0=law, seen=replace(self.seen, value=self.seen.value.to(device)))

    def _tempered(self, alpha: float) -> tuple[GaussianMixture, float]:
        alpha = check_alpha(alpha)
        if alpha == 0:
            return self.p0, 0.0
        sharp, constant = self.seen.power(alpha)
        law, log_evidence = self.p0.given(sharp)
        return law, log_evidence + constant
