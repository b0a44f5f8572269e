"""Read the text and code of each advice from ``fixes.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from string import Template
from typing import Any, Literal, get_args

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.documents import document
from trace_analyzer.vocabulary import CAUSES, REGIMES

PAGE = "docs/advice.md"
"""File with a section on each fix, whose anchor is the fix's id."""

Platform = Literal["cuda", "hip", "xpu"]
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
Program = Literal["training", "inference", "serving"]
"""Kind of program, as its trace shows; each is a case of code. Serving is inference by an engine such as vLLM."""
_VENDORS: Mapping[str, Platform] = {"NVIDIA": "cuda", "AMD": "hip", "Intel": "xpu"}
# Runtime calls of HIP; of Level Zero and of SYCL's runtimes on top of it.
_RUNTIMES: Mapping[Platform, str] = {"hip": r"^hip[A-Z]", "xpu": r"^(?:ze|ur|pi)[A-Z]"}


def platform_of(vendor: str | None, calls: pl.Series) -> Platform:
    """Return a device's platform: by its vendor, else by the names of runtime calls, else CUDA."""
    known = _VENDORS.get(vendor or "")
    platforms = [platform for platform, pattern in _RUNTIMES.items() if calls.str.contains(pattern).any()]
    return known or (platforms[0] if platforms else "cuda")


@dataclass(frozen=True)
class Fix:
    """Hold a fix: the regimes for which it applies, the change, and its code; ``titles`` and ``codes`` are by platform.

    A ``last_resort`` comes after all others, as it does not speed up the same work. ``replayed`` names the change of
    ``analyze whatif``, with options, by which a replay estimates the fix; None without one. ``causes`` are the causes
    of verdicts that the fix addresses by name. With ``alone``, it is given only without other advice. ``cases`` has
    codes by platform for cases that need other code.
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
        """Return the place of its documentation: a plug-in's ``page``, or a section of this package's docs."""
        return self.page or f"{PAGE}#{self.id}"

    def title_of(self, platform: Platform, **values: object) -> str:
        """Return the title with the values filled in; raise ``KeyError`` for a missing value."""
        return Template(self.titles[platform]).substitute(values)

    def code_of(self, platform: Platform, case: str = "", /, **values: object) -> str:
        """Return the code for a case, else in general, with the values filled in; ``KeyError`` for a missing value.

        Serving without code of its own uses that of inference.
        """
        other = self.cases.get("inference", self.codes) if case == "serving" else self.codes
        return _named_for(platform, Template(self.cases.get(case, other)[platform]).substitute(values))


@cache
def fixes() -> dict[str, Fix]:
    """Return the fixes by id in the file's order, then those of plug-ins."""
    raw = document("fixes.toml")
    own = {row["id"]: _fix(row) for row in raw["fixes"]}
    return own | {fix.id: fix for fix in plugins.added("fixes.toml", _added_fixes, key=lambda fix: fix.id, taken=own)}


def _added_fixes(document: Mapping[str, Any]) -> list[Fix]:
    """Return the fixes of a plug-in, each of which names its documentation page."""
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
    """Return title and code for a platform: its own, else those of CUDA with the platform's device name."""
    own = row.get(platform, {})
    assert isinstance(own, dict)
    code = str(row["code"])
    return str(own.get("title", row["title"])), str(own.get("code", _named_for(platform, code))).strip()


_COMPILES = re.compile(r"^(?P<statement>(?!\s*#).*\btorch\.compile\([^#\n]*?)(?:\s*#.*)?$", re.MULTILINE)


def for_torch_1(code: str) -> str:
    """Return code with a remark on each line that calls ``torch.compile``: it came with PyTorch 2.0.

    >>> for_torch_1("model = torch.compile(model)  # fuses")
    'model = torch.compile(model)  # needs PyTorch 2'
    """
    return _COMPILES.sub(r"\g<statement>  # needs PyTorch 2", code)


def _named_for(platform: Platform, code: str) -> str:
    """Return CUDA's code with the platform's device name."""
    return code.replace('"cuda"', '"xpu"').replace("torch.cuda.", "torch.xpu.") if platform == "xpu" else code
