"""What can be changed: words and code of each piece of advice, read from ``fixes.toml``."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

PAGE = "docs/advice.md"
"""Where each fix has a section, named by its id."""


@dataclass(frozen=True)
class Fix:
    """A change: the regimes that it is for, what to change, and the code; ``amd_`` where that differs on AMD."""

    id: str
    regimes: tuple[str, ...]
    title: str
    code: str
    amd_title: str
    amd_code: str

    @property
    def docs(self) -> str:
        """The section that says when it helps and how its bound is computed."""
        return f"{PAGE}#{self.id}"

    def title_of(self, *, amd: bool, **values: object) -> str:
        """The title with the values filled in. Raises ``KeyError`` for a value that is missing."""
        return Template(self.amd_title if amd else self.title).substitute(values)

    def code_of(self, *, amd: bool, **values: object) -> str:
        """The code with the values filled in. Raises ``KeyError`` for a value that is missing."""
        return Template(self.amd_code if amd else self.code).substitute(values)


@cache
def fixes() -> dict[str, Fix]:
    """The fixes by id, in the order of the file."""
    raw = tomllib.loads(files("trace_analyzer.catalog").joinpath("fixes.toml").read_text("utf-8"))
    return {row["id"]: _fix(row) for row in raw["fixes"]}


def _fix(row: dict[str, object]) -> Fix:
    title, code, amd = str(row["title"]), str(row["code"]).strip(), row.get("amd", {})
    regimes = row["regimes"]
    assert isinstance(amd, dict)
    assert isinstance(regimes, list)
    return Fix(
        id=str(row["id"]),
        regimes=tuple(regimes),
        title=title,
        code=code,
        amd_title=amd.get("title", title),
        amd_code=amd.get("code", code).strip(),
    )
