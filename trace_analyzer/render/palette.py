"""The colours of everything that is drawn, read from the page's own style sheet: there is one source for both."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

Theme = Literal["light", "dark"]

_COLOUR = re.compile(r"--([\w-]+):\s*(#[0-9a-f]{6});")
_DARK = '[data-theme="dark"]'


def palette_css() -> str:
    """The style sheet that defines the colours."""
    return (files("trace_analyzer.render.html") / "assets" / "palette.css").read_text(encoding="utf-8")


@cache
def palette(theme: Theme = "light") -> Mapping[str, str]:
    """Colours as ``#rrggbb`` by the name of their CSS variable without its dashes; dark ones overlay the light ones."""
    light, _, dark = palette_css().partition(_DARK)
    return dict(_COLOUR.findall(light if theme == "light" else light + dark))
