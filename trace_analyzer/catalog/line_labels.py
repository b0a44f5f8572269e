"""Label lines of device and idle time for people: buckets and groups of kernels, copies by direction, window parts."""

from functools import cache

from trace_analyzer.catalog.event_names import direction_rules
from trace_analyzer.catalog.kernels import buckets
from trace_analyzer.vocabulary import GROUPS, PARTS, Term, label, phrase


@cache
def _bucket_terms() -> dict[str, Term]:
    rows = buckets().iter_rows(named=True)  # no query: it would hang in a forked process
    return {row["bucket"]: Term(row["bucket"], row["label"], row["doc"]) for row in rows}


def bucket_keys() -> tuple[str, ...]:
    """Return the keys of all buckets."""
    return tuple(_bucket_terms())


def line_label(key: str) -> str:
    """Return the label of a bucket, cause, part or kind of copy; other keys are written as words.

    >>> line_label("copy_cast"), line_label("launch-latency"), line_label("host-to-device copy")
    ('Copy and cast', 'Launch latency', 'Host to device copy')
    """
    term = PARTS.get(key) or _bucket_terms().get(key)
    return term.label if term else label(key)


def line_phrase(key: str) -> str:
    """Return the label of `line_label` as written within a sentence.

    >>> line_phrase("kv_cache"), line_phrase("copy_cast"), line_phrase("host-unknown")
    ('KV cache', 'copy and cast', 'host, unrecorded')
    """
    term = PARTS.get(key) or _bucket_terms().get(key)
    return term.phrase if term else phrase(key)


def is_line(name: str) -> bool:
    """Return whether a name is the key of a line, in contrast to a program's name for an operator or module.

    >>> is_line("sort_scan"), is_line("memset"), is_line("unknown copy"), is_line("aten::copy_")
    (True, True, True, False)
    """
    copies = [f"{direction} copy" for direction in (*(rule.name for rule in direction_rules()), "unknown")]
    return name in PARTS or name in _bucket_terms() or name in ("memset", *copies)


def group_label(key: str) -> str:
    """Return the label of a group of buckets, else of a line."""
    return GROUPS[key].label if key in GROUPS else line_label(key)


def bucket_key(text: str) -> str:
    """Return the key of the bucket with this label, ignoring case; any other text unchanged.

    >>> bucket_key("Copy and cast"), bucket_key("kv cache"), bucket_key("aten::mm")
    ('copy_cast', 'kv_cache', 'aten::mm')
    """
    keys = {term.label.casefold(): key for key, term in _bucket_terms().items()}
    return keys.get(text.casefold(), text)


def is_named(key: str, text: str) -> bool:
    """Return whether a text names the line: its key, or its label ignoring case."""
    return text == key or text.casefold() == line_label(key).casefold()


def is_group_named(key: str, text: str) -> bool:
    """Return whether a text names the group of buckets: its key, or its label ignoring case."""
    return text == key or (key in GROUPS and text.casefold() == GROUPS[key].label.casefold())
