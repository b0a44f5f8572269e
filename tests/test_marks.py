"""Markup of texts changes none of their letters, and texts from traces stay text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from tiers import examples

from trace_analyzer.render.html.codec import inert
from trace_analyzer.render.html.shell import breakable, remarked


@pytest.mark.parametrize(
    ("name", "room", "lines", "broken"),
    [
        ("aten::convolution_backward", 24, 2, "aten::|convolution_|backward"),
        ("cudaEventSynchronize", 16, 2, "cuda|Event|Synchronize"),
        ("Optimizer.zero_grad#SGD.zero_grad", 20, 2, "Optimizer.|zero_|grad#|SGD.|zero_|grad"),
        ("DistributedDataParallel.forward", 12, 2, "DistributedDataParallel.forward"),
        ("transformers/models/bert/modeling_bert.py:364", 20, 3, "transformers/|models/|bert/|modeling_|bert.|py:|364"),
        ("onewordwithoutanyplacetobreak", 20, 2, "onewordwithoutanyplacetobreak"),
    ],
)
def test_a_name_breaks_between_its_words_where_that_fits(name: str, room: int, lines: int, broken: str) -> None:
    assert str(breakable(name, room, lines)) == broken.replace("|", "<wbr>")


@settings(max_examples=examples(200))
@given(st.text(), st.integers(1, 40), st.integers(1, 3))
def test_no_letter_is_lost_and_all_is_text(text: str, room: int, lines: int) -> None:
    for made, tags in (
        (breakable(text, room, lines), r"<wbr>"),
        (remarked(text), r'<span class="remark(?: after)?">|</span>'),
    ):
        assert Markup(re.sub(tags, "", made)).unescape() == inert(text)
        assert "<" not in re.sub(tags, "", made)


def test_remarks_are_marked_and_those_after_code_differ() -> None:
    assert (
        remarked('x = "#1"  # <b>\n# or y')
        == 'x = &#34;#1&#34;  <span class="remark after"># &lt;b&gt;</span>\n<span class="remark"># or y</span>'
    )
