"""Give functions that pass options on an explicit signature, for completion in editors."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def takes_options_of(source: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that shows the keyword options of ``source`` in place of ``**options``.

    This changes only the result of `inspect.signature`, not the call.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [
            parameter
            for parameter in inspect.signature(source).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in own.parameters
        ]
        function.__signature__ = own.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
        return function

    return decorate
