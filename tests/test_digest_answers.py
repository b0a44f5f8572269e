"""Check that the 2 kB of `--format agent` answer the questions of benchmarks/digest_answers.py on each sample."""

import digest_answers as evaluation
import pytest
from conftest import sample_report

from trace_analyzer.explain.agent import MOST_BYTES


@pytest.mark.sampled
@pytest.mark.parametrize("name", evaluation.NAMES)
def test_the_digest_answers_every_question(name: str) -> None:
    digest = sample_report(name).to_agent_text()
    assert len(digest.encode()) <= MOST_BYTES
    assert evaluation.wrong(name, digest) == []


def test_every_sample_is_asked_about_and_every_question_asked() -> None:
    samples = {path.name for path in evaluation.SAMPLES.glob("*.json.gz")}
    assert set(evaluation.NAMES) == samples
    for question in evaluation.QUESTIONS:
        assert question.answers
        assert set(question.answers) <= samples


def test_a_wrong_or_empty_digest_answers_nothing() -> None:
    for name in evaluation.NAMES:
        asked = [question for question in evaluation.QUESTIONS if name in question.answers]
        unsaid = evaluation.wrong(name, "")
        assert len(unsaid) >= len(asked) - 1  # "No verdict" is also what an empty text means
    answers = [
        question for question in evaluation.QUESTIONS if isinstance(question.answers.get(evaluation.LOADING), float)
    ]
    digest = "advice:x  y: saves at most 3 ms\nwindow  Data loading 1 %\ndevice  0, x; a steady step takes 1 ms\ngap:0  1 ms\n"
    assert not any(evaluation.is_right(question, evaluation.LOADING, digest) for question in answers)
