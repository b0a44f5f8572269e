"""Read each piece of advice from its page in the folder ``advice``.

A page has the title, a block of settings, and a section for each of `HEADINGS`. The rule with the page's name in
advice/rules.py decides when a fix applies and how much it saves at most. Settings of a fix, in TOML:

- ``regimes``: it is given only where one of these is the limit or the runner-up.
- ``hip``, ``xpu``: a title that differs on AMD or Intel in more than words (`WORDS`).
- ``replayed``: the change of ``analyze whatif`` that estimates the fix, and its options.
- ``last_resort``: it comes after all other advice, however much it saves: it does not speed up the same work, or changes its results.
- ``alone``: it is given only if there is no other advice.

Those of a fix for a run on the CPU are `OF_CPU`; a page may be both. Section Code has the code, and
below a heading of its own that for a case which the rule names, or for a trace of ``training``, ``inference`` or
``serving``; ``... on hip`` and ``... on xpu`` are for these platforms. The rule fills in ``$dtype`` and other placeholders.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from string import Template
from typing import Any, Literal, get_args

import polars as pl
from msgspec import Struct

from trace_analyzer.catalog import FOLDER, rows
from trace_analyzer.vocabulary import REGIMES

PAGES = "trace_analyzer/catalog/advice"
"""Folder of the pages."""
OF_CPU = ("parts", "least", "saves", "phases", "bits", "only", "unless", "slower_than", "keeps_longest")
"""Settings of a fix for a run on the CPU, as `trace_analyzer.advice.host_work.CpuFix` describes them."""
HEADINGS = ("What", "Why", "When not", "Example", "Code", "Safety", "Bound")
"""Sections of a page, in this order: what to change, why it helps, when it does not, what it replaces, the code by case,
what the change risks, and how the bound on its saving is computed."""

Platform = Literal["cuda", "hip", "xpu"]
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
Program = Literal["training", "inference", "serving"]
"""Kind of program, as its trace shows; each is a case of code. Serving is inference by an engine such as vLLM."""
_VENDORS: Mapping[str, Platform] = {"NVIDIA": "cuda", "AMD": "hip", "Intel": "xpu"}
# Runtime calls of HIP; of Level Zero and of SYCL's runtimes on top of it.
_RUNTIMES: Mapping[Platform, str] = {"hip": r"^hip[A-Z]", "xpu": r"^(?:ze|ur|pi)[A-Z]"}


Accelerator = Literal["cuda", "hip", "xpu", "mps", "npu", "hpu", "mtia", "other"]
"""Whose work a trace holds: that of a `Platform`, or of Apple, Ascend, Gaudi, MTIA or another."""
OF_OPERATORS: Mapping[Accelerator, str] = {
    "mps": r"^aten::_?(mps_|\w+_mps(_|$))", "npu": r"^(torch_)?npu::", "hpu": r"^hpu::", "mtia": r"^mtia::",
}  # fmt: skip
"""Operators that exist for one accelerator: of PyTorch for Apple's GPU (`aten::_lstm_mps`), else in the namespace of its library."""
_UNSUPPORTED: Mapping[str, Accelerator] = {"ascend": "npu", "npu": "npu", "hpu": "hpu", "mtia": "mtia", "xpu": "xpu"}


def accelerator_of(
    vendor: str | None, calls: pl.Series, operators: pl.Series, unsupported: Iterable[str]
) -> Accelerator | None:
    """Return whose work a trace holds, or shows that it launched; None for a run on the CPU.

    ``calls`` and ``operators`` are their names, ``unsupported`` the kinds of device events that cannot be read.
    """
    if kinds := [kind.lower() for kind in unsupported]:
        words = (known for kind in kinds for word, known in _UNSUPPORTED.items() if kind.startswith(word))
        return next(words, "other")
    own = (known for known, pattern in OF_OPERATORS.items() if operators.str.contains(pattern).any())
    if vendor is None and (known := next(own, None)):
        return known
    return platform_of(vendor, calls) if vendor is not None or len(calls) else None


def platform_of(vendor: str | None, calls: pl.Series) -> Platform:
    """Return a device's platform: by its vendor, else by the names of runtime calls, else CUDA."""
    known = _VENDORS.get(vendor or "")
    platforms = [platform for platform, pattern in _RUNTIMES.items() if calls.str.contains(pattern).any()]
    return known or (platforms[0] if platforms else "cuda")


class Fix(Struct, frozen=True):
    """A fix: the regimes for which it applies, the change, and its code; ``titles`` and ``codes`` are by platform.

    A ``last_resort`` comes after all others, as it does other work, or changes results. ``replayed`` names the change of
    ``analyze whatif``, with options, by which a replay estimates the fix; None without one. With ``alone``, it is
    given only without other advice. ``cases`` has codes by platform for cases that need other code.
    """

    id: str
    regimes: tuple[str, ...]
    titles: Mapping[Platform, str]
    codes: Mapping[Platform, str]
    last_resort: bool = False
    replayed: Mapping[str, float | str] | None = None
    alone: bool = False
    page: str = ""
    cases: Mapping[str, Mapping[Platform, str]] = {}

    @property
    def docs(self) -> str:
        """Return the place of its documentation: a plug-in's ``page``, or that of this package."""
        return self.page or page_of(self.id)

    def title_of(self, platform: Platform, **values: object) -> str:
        """Return the title with the values filled in; raise ``KeyError`` for a missing value."""
        return Template(self.titles[platform]).substitute(values)

    def code_of(self, platform: Platform, *cases: str, **values: object) -> str:
        """Return the code for cases, else in general, with the values filled in; ``KeyError`` for a missing value.

        Serving without code of its own uses that of inference.
        """
        codes = (
            self.cases.get(case, self.cases.get("inference", self.codes) if case == "serving" else self.codes)
            for case in cases or ("",)
        )
        return _named_for(platform, Template("\n".join(code[platform] for code in codes)).substitute(values))


def page_of(fix_id: str) -> str:
    """Return the file of a page of this package."""
    return f"{PAGES}/{fix_id}.md"


@cache
def pages() -> dict[str, dict[str, Any]]:
    """Return each page by its id: its settings, ``title``, ``code``, ``cases`` and other ``sections``."""
    return {path.stem: _page(path.stem, path.read_text("utf-8")) for path in sorted((FOLDER / "advice").glob("*.md"))}


def _page(fix_id: str, text: str) -> dict[str, Any]:
    head, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    title, settings = head.removeprefix("# ").split("\n", 1)
    sections = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    general, *others = re.split(r"^### (.+)\n", sections["Code"], flags=re.MULTILINE)
    page: dict[str, Any] = {"id": fix_id, "title": title, "cases": {}, **tomllib.loads(_fenced(settings))}
    for heading, body in zip(("", *others[::2]), (general, *others[1::2]), strict=True):
        case, platform = _OF_CASE.fullmatch(heading).groups()  # type: ignore[union-attr]
        texts = page["cases"].setdefault(case, {}) if case else page
        (texts.setdefault(platform, {}) if platform else texts)["code"] = _fenced(body)
    return page | {"sections": sections}


_OF_CASE = re.compile(r"(.*?)(?:(?:^| )on (hip|xpu))?")


def _fenced(text: str) -> str:
    """Return the content of the block of code in a text."""
    return text.split("```")[1].partition("\n")[2].strip()


@cache
def fixes() -> dict[str, Fix]:
    """Return the fixes by id in alphabetical order, then those of plug-ins."""
    own = [page for page in pages().values() if "regimes" in page]
    return {
        fix.id: fix for fix in rows("fixes.toml", "fixes", _fix, lambda fix: fix.id, check_added=_check_page, own=own)
    }


def _check_page(fix: Fix) -> None:
    if not fix.page:
        raise ValueError("page, where it is documented, is missing")


def _fix(row: Mapping[str, Any]) -> Fix:
    """Return a fix with its words by platform: its own, else those of CUDA with the platform's device name."""

    def words(texts: Mapping[str, Any], key: str) -> dict[Platform, str]:
        return {
            platform: str(texts.get(platform, {}).get(key) or _in_words_of(platform, texts[key])).strip()
            for platform in PLATFORMS
        }

    plain: dict[str, Any] = {
        key: row[key] for key in row.keys() - {"title", "code", "cases", "sections", *OF_CPU, *PLATFORMS}
    }
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    fix = Fix(
        **plain,
        titles=words(row, "title"),
        codes=words(row, "code"),
        cases={case: words(texts, "code") for case, texts in row.get("cases", {}).items()},
    )
    if wrong := {*fix.regimes} - {*REGIMES}:
        raise ValueError(f"{min(wrong)!r} is no regime")
    return fix


_COMPILES = re.compile(r"^(?P<statement>(?!\s*#).*\btorch\.compile\([^#\n]*?)(?:\s*#.*)?$", re.MULTILINE)


def with_remark(code: str, remark: str) -> str:
    """Return code with a remark on each line that calls ``torch.compile``.

    >>> with_remark("model = torch.compile(model)  # fuses", "needs PyTorch 2")
    'model = torch.compile(model)  # needs PyTorch 2'
    """
    return _COMPILES.sub(rf"\g<statement>  # {remark}", code)


_OPTIONS: Mapping[str, str] = {
    'mode="reduce-overhead"': "torch._inductor.config.triton.cudagraphs = True  # before it compiles: its code replays graphs\n"
    "# TORCH_LOGS=graph_breaks,recompiles,cudagraphs names what splits it, what is compiled again, and what no graph holds",
    'mode="max-autotune"': "torch._inductor.config.max_autotune = True  # before it compiles: tries more kernels per shape",
    "": "# compiled, at least in part: TORCH_LOGS=graph_breaks,recompiles names what splits it, and what is compiled again",
}
"""Argument of ``torch.compile`` -> what does the same in a program that is compiled already."""
_OR_COMPILES = re.compile(r"^# .*\btorch\.compile\b.*\n?|(?:;|  #) or torch\.compile\b.*|\bcompile, or ", re.MULTILINE)


def for_compiled(code: str) -> str:
    """Return code, or a title, for a program that is compiled already: its compiler's options instead of ``torch.compile``.

    >>> for_compiled('model = torch.compile(model, mode="max-autotune")  # tries more kernels')
    'torch._inductor.config.max_autotune = True  # before it compiles: tries more kernels per shape'
    """
    calls = _COMPILES.sub(lambda call: next(new for old, new in _OPTIONS.items() if old in call["statement"]), code)
    return "\n".join(dict.fromkeys(_OR_COMPILES.sub("", calls).splitlines()))


_AUTOCAST = re.compile(r"(\btorch\.autocast\([^()\n]*)\)")


def for_replayed(code: str) -> str:
    """Return code that changes kernels, for a program whose graphs repeat those that they captured; else as it is.

    >>> print(for_replayed('with torch.autocast("cuda", dtype=torch.bfloat16): step()'))
    # before the capture: a graph repeats the kernels that it captured
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False): step()
    """
    if "graph" in code or "capture" in code or all(line.startswith("#") for line in code.splitlines()):
        return code
    uncached = _AUTOCAST.sub(r"\1, cache_enabled=False)", code)
    return f"# before the capture: a graph repeats the kernels that it captured\n{uncached}"


FUSED = ("Adagrad", "Adam", "AdamW", "SGD")
FOREACH = ("Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers of torch.optim with ``fused=True``, and those with ``foreach=True`` only."""
_OF_LATE = "; on GPUs from PyTorch 2.13 on, before: foreach=True"
"""Remark on Adagrad, whose fused form ran on the CPU alone before (torch/optim/adagrad.py: CPU and CUDA)."""


def has_fused(name: str, platform: Platform | None = None) -> bool:
    """Return whether an optimizer of this class has ``fused=True`` on a platform, or on the CPU."""
    return name in FUSED and (name, platform) != ("Adagrad", "xpu")


_NOT_CAPTURABLE = ("Adafactor", "Adagrad", "SGD")
"""Those of them without ``capturable=True``, which keeps the number of the step on the device."""


def optimizer_in_few_launches(name: str, platform: Platform | None = None, *, captured: bool = False) -> str:
    """Return code for an optimizer of this class, on the CPU without a platform; "" is a class that the trace does not name.

    With ``captured``, a graph replays its updates.
    """
    if captured and not name:
        return "# the program's optimizer, before the capture: Adam, AdamW: fused=True, capturable=True; others: foreach=True, capturable=True"
    if name in FUSED + FOREACH:
        is_fused = has_fused(name, platform)
        asked = "fused=True" if is_fused else "foreach=True"
        if captured and name not in _NOT_CAPTURABLE:
            asked += ", capturable=True"
        late = _OF_LATE if platform and name == "Adagrad" and is_fused else ""
        return (
            f"optimizer = torch.optim.{name}(model.parameters(), **options, {asked})  # options: the present ones{late}"
        )
    if not name:
        fused = [known for known in FUSED if has_fused(known, platform)]
        return f"# fused=True where the optimizer has it ({', '.join(fused)}), else foreach=True"
    return f"# torch.optim has no fused or foreach form of {name}: its own option, else torch._foreach_add_(...) over lists of parameters"


WORDS: Mapping[Platform, Mapping[str, str]] = {
    "hip": {"CUDA graph": "HIP graph", "tensor cores": "matrix cores", "shared memory": "LDS"},
    "xpu": {"tensor cores": "XMX units", "shared memory": "local memory"},
}
"""Platform -> CUDA's words, and its own."""
PROFILE: Mapping[Platform, str] = {
    "cuda": 'ncu --set full --kernel-name-base demangled --kernel-name "regex:{}" --launch-count 1 COMMAND',
    "hip": 'rocprof-compute profile --name one --kernel "{}" -- COMMAND',
    "xpu": "unitrace --device-timing COMMAND",
}
"""Platform -> the command that shows what holds the kernels whose names match a pattern; COMMAND starts the program."""


def _in_words_of(platform: Platform, text: str) -> str:
    """Return CUDA's title or code in the words of a platform, with its device name."""
    for word, own in WORDS.get(platform, {}).items():
        text = text.replace(word, own)
    return _named_for(platform, text)


def _named_for(platform: Platform, code: str) -> str:
    """Return CUDA's code with the platform's device name."""
    return code.replace('"cuda"', '"xpu"').replace("torch.cuda.", "torch.xpu.") if platform == "xpu" else code


COMPILE = "torch.compile(f)  # fuses the chain into one kernel"


class Fusion(Struct, frozen=True):
    """A named chain: the pattern of its operators, its description, and replacement code."""

    id: str
    operators: str
    what: str
    code: str


@cache
def fusions() -> tuple[Fusion, ...]:
    """Return all rules, in order of precedence."""
    return rows("fusions.toml", "fusion", Fusion, lambda rule: rule.id)


def named_fusion(operators: str) -> Fusion | None:
    """Return the first rule that matches a chain of operators, ``>add>gelu>``."""
    return next((rule for rule in fusions() if re.search(rule.operators, operators)), None)
