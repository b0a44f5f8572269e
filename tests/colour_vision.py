"""Simulate colour vision deficiencies, and measure the distance of two colours."""

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency,
# IEEE TVCG 15(6), 2009: the matrices for severity 1.0, applied to linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip

# Ottosson: A perceptual color space for image processing (Oklab), 2020.
_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                    [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def linear_rgb(colour: str) -> Vector:
    """Return ``#rrggbb`` as linear light (IEC 61966-2-1)."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def seen(colour: str, vision: str) -> Vector:
    """Return the colour in Oklab as perceived with this vision."""
    light = np.clip(VISION[vision] @ linear_rgb(colour), 0, 1)
    return np.asarray(_TO_LAB @ np.cbrt(_TO_LMS @ light))


def distance(one: str, other: str, vision: str) -> float:
    """Return the distance in Oklab: about 0.02 is just noticeable side by side."""
    return float(np.linalg.norm(seen(one, vision) - seen(other, vision)))


def closest(colours: Mapping[str, str], vision: str) -> tuple[float, str, str]:
    """Return the two colours with the smallest distance, and this distance."""
    pairs = itertools.combinations(colours, 2)
    return min((distance(colours[a], colours[b], vision), a, b) for a, b in pairs)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    high, low = sorted((float(np.dot(linear_rgb(c), (0.2126, 0.7152, 0.0722))) for c in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
