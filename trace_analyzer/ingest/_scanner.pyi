from collections.abc import Callable, Iterable, Mapping

from trace_analyzer.frames._arrow import Column

MORE: int
PARTIAL: int
CLOSED: int
FULL: int
BROKEN: int
NO_ROUTE: int
ODD: int
TIME: int
INTEGER: int
LABEL: int
TEXT: int

class Scanner:
    def __init__(
        self,
        columns: list[tuple[str, int]],
        fields: Mapping[str, str],
        arguments: Mapping[str, str],
        routes: Iterable[tuple[Iterable[str], str, Iterable[str]]],
        seed: int,
        rows: int,
    ) -> None: ...
    def read(self, text: bytes, at: int, size: int) -> tuple[int, int, int]: ...
    def taken(self) -> dict[int, int]: ...
    def has(self, route: int, name: str) -> bool: ...
    def rows(self, route: int, first: int) -> Column: ...
    def codes(self, route: int, name: str) -> Column: ...
    def integers(self, route: int, name: str) -> Column: ...
    def tracks(self, process: str, thread: str, first: int) -> tuple[Column, Column, Column]: ...
    def places(self, route: int) -> list[tuple[int, int, int]]: ...
    def words(self, text: bytes, form: int, read: Callable[[bytes], str | None]) -> list[str | None]: ...

def give_back() -> None: ...
