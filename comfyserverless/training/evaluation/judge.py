"""Read a picture: the colour of its background, and colour, shape, place and size of each object.

The judge sees pixels only, never the prompt. Regions that differ from the background are cut out softly (how
much of a pixel does the object cover?), and `silhouettes` names their shapes. It does not understand stripes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageFilter

from comfyserverless.training.evaluation.grounds import color_name, find_ground, nearest_colors
from comfyserverless.training.evaluation.regions import Mask, filled, grown, label, shrunk
from comfyserverless.training.evaluation.silhouettes import ROUND, best_fit, fit_ring
from comfyserverless.training.scenery.world import COLORS, SHORT_SIDE, Floats, Picture

_DIFFERS = 30.0
"""Distance in RGB from the background beyond which a pixel may be of an object."""
_SPECK_UNITS2 = 80.0
"""Area in square units below which a region is a speck."""
_CORE_SHARE = 0.1
"""Share of a piece that is left when its rim goes; the halo of another object has less."""
_SECOND_COLOR_SHARE = 0.2
_COLORS_APART = 50.0
_THIN_SHARE = 0.3
_HOLLOW_SHARE = 0.12
_RING_SHARE = 0.42
"""Share of a round silhouette that is hole: less is a ring, more is a hollow circle."""
_NOISY = 6.0
_MARGIN_PX = 3


@dataclass(frozen=True, slots=True)
class Thing:
    """One object. color, shape: "" when it is none of ours; x, y: its middle, 0..1 of width and height.

    radius: in units, of which the shorter side has 128; area: in square units, holes included; fit: how much it
    and the drawn shape overlap, 0..1.
    """

    color: str
    shape: str
    x: float
    y: float
    radius: float
    area: float
    is_hollow: bool
    fit: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What is in a picture: the background's colour, and the objects, largest first."""

    background: str
    things: tuple[Thing, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """A picture as the judge works on it: pixels and their difference from the background, [h, w, 3]."""

    pixels: Floats
    away: Floats

    @property
    def units2_per_px(self) -> float:
        side: float = SHORT_SIDE / min(self.pixels.shape[:2])
        return side * side


@dataclass(frozen=True, slots=True)
class _Piece:
    """One connected object: its pixels, how much of each it covers, and its colour."""

    mask: Mask
    coverage: Floats
    color: str


def read_picture(picture: Picture) -> Reading:
    """Read a picture [h, w, 3] uint8 of at least 32 pixels each way."""
    ground = find_ground(picture.astype(np.float32))
    if ground.noise > _NOISY:
        picture = np.asarray(Image.fromarray(picture).filter(ImageFilter.MedianFilter(3)))
    pixels = picture.astype(np.float32)
    view = _View(pixels, pixels - ground.colors)
    pieces = [piece for region in _regions(view) for piece in _pieces(region, view)]
    pieces.sort(key=lambda piece: -int(piece.mask.sum()))
    things = [_thing(piece, inner, view) for piece, inner in _with_inner(pieces)]
    return Reading(ground.name, tuple(sorted(things, key=lambda thing: -thing.area)))


def _regions(view: _View) -> Iterator[Mask]:
    """Yield what differs from the background, region by region, specks left out."""
    differs = np.linalg.norm(view.away, axis=-1) > _DIFFERS
    labels, count = label(differs, is_diagonal=True)
    areas = np.bincount(labels.ravel(), minlength=count + 1) * view.units2_per_px
    for number in range(1, count + 1):
        if areas[number] >= _SPECK_UNITS2:
            yield labels == number


def _pieces(region: Mask, view: _View) -> Iterator[_Piece]:
    """Yield the objects of one region: it may hold several that nearly touch, also of different colours."""
    colors = _colors_of(region, view)
    shift = np.stack(colors)[:, None, None] - (view.pixels - view.away)
    along = (view.away * shift).sum(-1) / np.maximum((shift * shift).sum(-1), 1.0)
    coverages = np.clip(along, 0, 1)
    error = np.linalg.norm(view.away - coverages[..., None] * shift, axis=-1)
    chosen = error.argmin(0)
    for index, color in enumerate(colors):
        coverage = np.where(grown(region) & (chosen == index), coverages[index], 0)
        labels, count = label(coverage >= 0.5, is_diagonal=True)
        for number in range(1, count + 1):
            mask = labels == number
            is_fringe = shrunk(mask).sum() < _CORE_SHARE * mask.sum()
            if mask.sum() * view.units2_per_px >= _SPECK_UNITS2 and not is_fringe:
                others = (labels > 0) & ~mask
                own = np.where(grown(mask, 2) & ~others, coverage, 0)
                yield _Piece(mask, own, color_name(color))


def _colors_of(region: Mask, view: _View) -> list[Floats]:
    """Return the pure colours in a region: the most frequent one, and others that are no mere shades of it."""
    core = region & shrunk(region)
    if core.sum() < _THIN_SHARE * region.sum():
        strength = np.linalg.norm(view.away, axis=-1)
        core = region & (strength >= 0.8 * np.percentile(strength[region], 95))
    found = view.pixels[core]
    names = nearest_colors(found)
    counts = np.bincount(names, minlength=len(COLORS))
    colors: list[Floats] = []
    for name in np.argsort(-counts, kind="stable"):
        if counts[name] < _SECOND_COLOR_SHARE * counts.max():
            break
        color = np.median(found[names == name], 0).astype(np.float32)
        if all(np.linalg.norm(color - other) > _COLORS_APART for other in colors):
            colors.append(color)
    return colors


def _with_inner(pieces: list[_Piece]) -> Iterator[tuple[_Piece, bool]]:
    """Yield every piece that lies in no other of its colour, and whether it holds such a one.

    pieces: largest first. The outline of a ring is one circle in another: two pieces, one object.
    """
    left = list(pieces)
    while left:
        outer = left.pop(0)
        inside = filled(outer.mask) & ~outer.mask
        inner = [piece for piece in left if piece.color == outer.color and not (piece.mask & ~inside).any()]
        left = [piece for piece in left if all(piece is not other for other in inner)]
        yield outer, bool(inner)


def _thing(piece: _Piece, has_inner: bool, view: _View) -> Thing:
    """Name the shape of a piece from its silhouette and its holes."""
    top, left, near = _window(piece.mask)
    coverage = piece.coverage[near]
    silhouette = np.where(shrunk(filled(piece.mask[near])), 1, coverage)
    hole_share = float((silhouette - coverage).sum() / silhouette.sum())
    fit, is_hollow = best_fit(silhouette), hole_share >= _HOLLOW_SHARE
    if has_inner and fit.shape in ROUND:
        fit = replace(fit, shape="ring")
    elif is_hollow and hole_share < _RING_SHARE:
        ring = fit_ring(coverage)
        fit, is_hollow = (ring, False) if ring.shape else (fit, True)
    height, width = piece.mask.shape
    return Thing(
        piece.color,
        fit.shape,
        x=(fit.x + left) / width,
        y=(fit.y + top) / height,
        radius=fit.radius * SHORT_SIDE / min(height, width),
        area=float(silhouette.sum()) * view.units2_per_px,
        is_hollow=is_hollow,
        fit=fit.overlap,
    )


def _window(mask: Mask) -> tuple[int, int, tuple[slice, slice]]:
    """Return top, left and the slices of a window around a mask, a little wider than it."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    top, left = max(0, int(rows[0]) - _MARGIN_PX), max(0, int(columns[0]) - _MARGIN_PX)
    return (
        top,
        left,
        (slice(top, int(rows[-1]) + 1 + _MARGIN_PX), slice(left, int(columns[-1]) + 1 + _MARGIN_PX)),
    )
