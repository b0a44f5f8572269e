"""Build the style sheet with the colours of everything that is drawn, and read these colours for plots."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from trace_analyzer.vocabulary import ACTIVITIES, GROUPS, PARTS, REGIMES, Colour

Theme = Literal["light", "dark"]

_COLOUR = re.compile(r"--([\w-]+):\s*(#[0-9a-f]{6});")
_DARK = '[data-theme="dark"]'


@cache
def palette_css() -> str:
    """Return the style sheet with the colours, where the vocabulary's replace the placeholders."""
    style = (files("trace_analyzer.render.html") / "assets" / "palette.css").read_text(encoding="utf-8")
    colours = _vocabulary_colours()
    light = " ".join(f"--{name}: {colour.light};" for name, colour in colours.items())
    dark = " ".join(f"--{name}: {colour.dark};" for name, colour in colours.items() if colour.dark)
    regimes = "\n".join(
        f".r-{regime.key}, .step.aside-step.r-{regime.key} {{ --c: var(--p-{regime.part}); }}"
        for regime in REGIMES.values()
    )
    return (
        style.replace("/* light vocabulary */", light)
        .replace("/* dark vocabulary */", dark)
        .replace("/* regimes */", regimes)
    )


@cache
def palette(theme: Theme = "light") -> Mapping[str, str]:
    """Return colours as ``#rrggbb`` by their CSS variable without dashes; dark colours override light ones."""
    light, _, dark = palette_css().partition(_DARK)
    return dict(_COLOUR.findall(light if theme == "light" else light + dark))


def _vocabulary_colours() -> dict[str, Colour]:
    """Map CSS variables to colours: ``p-`` for parts of a window, ``k-`` for kinds of activities."""
    return {f"p-{part.key}": part.colour for part in PARTS.values()} | {
        f"k-{group.key}": group.colour for group in (*GROUPS.values(), *ACTIVITIES.values())
    }
