"""The errors this library raises on purpose, each with words that name the fault and the remedy."""

from __future__ import annotations


class TruetiltError(Exception):
    """The base of every error this library raises on purpose."""


class InvalidInput(TruetiltError, ValueError):
    """An argument is out of range or two of them do not fit; the message names both sides and the remedy."""


class FolderTaken(InvalidInput):
    """A folder holds finished work of another call, or is in use; the message says what to do, or where else to go."""


class FunctionFailed(InvalidInput):
    """A function of the user's, such as a reward, has no value for a state; the message names the state."""


class InvalidWeights(TruetiltError, ArithmeticError):
    """A weight became NaN or +inf; the message names the step."""


class DegenerateWeights(TruetiltError, ArithmeticError):
    """Every particle of every population has weight zero; the message names the step."""


class Stopped(TruetiltError):
    """A run was asked to end (SIGTERM) and saved what it had; the message says where and how to go on."""


class Rejected(TruetiltError, AssertionError):
    """A part does not keep what its kind promises (`truetilt.testing`); the message gives the figures."""
