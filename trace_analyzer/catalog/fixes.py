"""Read the words and code of each piece of advice from ``fixes.toml``."""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from string import Template
from typing import Any, Literal, get_args

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.documents import document
from trace_analyzer.tuning import dataclass
from trace_analyzer.vocabulary import CAUSES, REGIMES

PAGE = "docs/advice.md"
"""Where each fix has a section, named by its id."""

Platform = Literal["cuda", "hip", "xpu"]
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
Program = Literal["training", "inference", "serving"]
"""What a program does, as far as its trace shows; each is a case of code. Serving is inference by an engine such as vLLM."""
_VENDORS: Mapping[str, Platform] = {"NVIDIA": "cuda", "AMD": "hip", "Intel": "xpu"}
# Calls of HIP; of Level Zero, and of SYCL's runtimes on top of it.
_RUNTIMES: Mapping[Platform, str] = {"hip": r"^hip[A-Z]", "xpu": r"^(?:ze|ur|pi)[A-Z]"}


def platform_of(vendor: str | None, calls: pl.Series) -> Platform:
    """Return a device's platform: by its vendor, else by the names of runtime calls, else CUDA."""
    known = _VENDORS.get(vendor or "")
    platforms = [platform for platform, pattern in _RUNTIMES.items() if calls.str.contains(pattern).any()]
    return known or (platforms[0] if platforms else "cuda")


@dataclass(frozen=True)
class Fix:
    """Hold a change: the regimes that it is for, what to change, and the code; ``titles`` and ``codes`` by platform.

    A ``last_resort`` comes behind all others: it does not do the same work faster. ``replayed`` names the change that a
    replay estimates it with, as ``analyze whatif`` calls it, and its options: None where the replay has none. ``causes`` are those of verdicts that the fix cures by name.
    One that stands ``alone`` is given only where no other advice is. ``cases`` has the codes by platform of cases in which another code is right.
    """

    id: str
    regimes: tuple[str, ...]
    titles: Mapping[Platform, str]
    codes: Mapping[Platform, str]
    last_resort: bool = False
    replayed: Mapping[str, float | str] | None = None
    causes: tuple[str, ...] = ()
    alone: bool = False
    page: str = ""
    cases: Mapping[str, Mapping[Platform, str]] = field(default_factory=dict)

    @property
    def docs(self) -> str:
        """Return where it stands when it helps and how its bound is computed: a plug-in's ``page``, or a section of our docs."""
        return self.page or f"{PAGE}#{self.id}"

    def title_of(self, platform: Platform, **values: object) -> str:
        """Return the title with the values filled in; raise ``KeyError`` for a missing value."""
        return Template(self.titles[platform]).substitute(values)

    def code_of(self, platform: Platform, case: str = "", /, **values: object) -> str:
        """Return the code in a case, or else in general, with the values filled in; raise ``KeyError`` for a missing value.

        Serving has the code of inference where it has none of its own.
        """
        other = self.cases.get("inference", self.codes) if case == "serving" else self.codes
        return _named_for(platform, Template(self.cases.get(case, other)[platform]).substitute(values))


@cache
def fixes() -> dict[str, Fix]:
    """Return the fixes by id, in the order of the file, then those of plug-ins."""
    raw = document("fixes.toml")
    own = {row["id"]: _fix(row) for row in raw["fixes"]}
    return own | {fix.id: fix for fix in plugins.added("fixes.toml", _added_fixes, key=lambda fix: fix.id, taken=own)}


def _added_fixes(document: Mapping[str, Any]) -> list[Fix]:
    """Return the fixes of a plug-in, which say themselves where they are documented."""
    made = [replace(_fix(row), page=str(row["page"])) for row in document["fixes"]]
    for fix in made:
        if wrong := [key for key in fix.regimes if key not in REGIMES] + [
            key for key in fix.causes if key not in CAUSES
        ]:
            raise ValueError(f"fix {fix.id}: {wrong[0]!r} is no regime, or no cause of one")
    return made


def _fix(row: dict[str, object]) -> Fix:
    regimes, replayed = row["regimes"], row.get("replayed")
    causes = row.get("causes", [])
    assert isinstance(regimes, list)
    assert isinstance(causes, list)
    assert replayed is None or isinstance(replayed, dict)
    cases = row.get("cases", {})
    assert isinstance(cases, dict)
    words = {platform: _words(row, platform) for platform in PLATFORMS}
    return Fix(
        id=str(row["id"]),
        regimes=tuple(regimes),
        titles={platform: title for platform, (title, _) in words.items()},
        codes={platform: code for platform, (_, code) in words.items()},
        last_resort=bool(row.get("last_resort", False)),
        replayed=replayed,
        causes=tuple(causes),
        alone=bool(row.get("alone", False)),
        cases={
            case: {platform: _words({"title": ""} | own, platform)[1] for platform in PLATFORMS}
            for case, own in cases.items()
        },
    )


def _words(row: dict[str, object], platform: Platform) -> tuple[str, str]:
    """Return title and code on a platform: its own, else those of CUDA with Intel's device name."""
    own = row.get(platform, {})
    assert isinstance(own, dict)
    code = str(row["code"])
    return str(own.get("title", row["title"])), str(own.get("code", _named_for(platform, code))).strip()


def _named_for(platform: Platform, code: str) -> str:
    """Return CUDA's code with the platform's name of the device."""
    return code.replace('"cuda"', '"xpu"').replace("torch.cuda.", "torch.xpu.") if platform == "xpu" else code
