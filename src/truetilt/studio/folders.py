"""The kind of model at a user's path, recognised from its files; no network is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..core.errors import InvalidInput
from ..models.checkpoint_folders import is_transformers
from ..models.families import FAMILIES
from ..models.pretrained import CONFIG, read_card, read_json
from ..models.sedd_checkpoints import is_published
from ..models.text_bundle import is_reviews

_MOST = 10_000  # classes listed, at most
TABLE, DIGITS, REVIEWS, TEXT = "table", "digits", "reviews", "text"
STRINGS = "strings"  # a public network in a transformers folder
BACKBONE = "backbone"  # a protein's structure
MOLECULES = "molecules"  # the embedded network of them


class Found(NamedTuple):
    """The kind (empty: unknown), the names of the classes, and whether the process is masking."""

    kind: str = ""
    classes: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()  # the classes that a potential predicts
    masked: bool = True


def found_at(path: str | Path) -> Found:
    """What the path holds; a folder without a description is assumed to hold digit networks."""
    try:
        place = Path(path)
        if not str(path) or not place.exists():
            return Found()
        if place.is_file():
            return Found(TABLE)
        if not place.is_dir():  # a pipe or a device, which has no end
            return Found()
        if is_reviews(place):
            return _reviews(place)
        if is_transformers(place) and not is_published(place):
            return _strings(place)
        return _text(place) if (place / CONFIG).is_file() else Found(DIGITS)
    except (OSError, ValueError):  # not a valid file name
        return Found()


def sampler_for(there: Found) -> str:
    """A sampler for what was found; the recommended one if it can be: a single net has no classifier to tilt by."""
    if there.kind in (TEXT, STRINGS):
        return "any-order" if there.masked else "tempered"
    return "tilted"


def _reviews(folder: Path) -> Found:
    """The classes named on the card; a damaged card is reported later, when the bundle is loaded."""
    try:
        card = read_card(folder / "sedd")
        classes = tuple(str(name) for name in card["classes"])
        return Found(REVIEWS, classes, tuple(str(name) for members in card["groups"].values() for name in members))
    except (InvalidInput, KeyError, TypeError, AttributeError):
        return Found(REVIEWS)


def _strings(folder: Path) -> Found:
    """A public network: whether its family is masking, and its classes, if it has any."""
    config = read_json(folder / CONFIG)
    told = {config.get("model_type"), *(config.get("architectures") or ())}
    masked = all(family.masked for family in FAMILIES if told & set(family.known_by))
    many = config.get("num_classes") if not masked else 0
    classes = tuple(str(number) for number in range(min(int(many or 0), _MOST)))
    return Found(STRINGS, classes, masked=masked)


def _text(folder: Path) -> Found:
    try:
        if is_published(folder):
            return Found(TEXT, masked=read_json(folder / CONFIG)["graph"]["type"] == "absorb")
        config = read_json(folder / CONFIG)
        classes = tuple(str(number) for number in range(min(int(config.get("classes") or 0), _MOST)))
        return Found(TEXT, classes, masked=bool(config.get("masked", True)))
    except (InvalidInput, KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return Found(TEXT)
