"""Run at the start of each Python process that ``analyze record`` starts, directly or indirectly.

Python imports the first ``sitecustomize`` on its path: this one first imports the one that it shadows, and then waits
for torch. A script that never imports torch is not affected.
"""

import importlib
import os
import sys


def _shadowed() -> None:
    """Import the sitecustomize that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


def _arm() -> None:
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    sys.path.append(home)
    try:
        from trace_analyzer.capture.recorder import arm

        arm()
    except Exception as error:  # no failure may affect the script
        print(f"analyze: this Python is not recorded: {error}", file=sys.stderr)
    finally:
        sys.path.remove(home)


_arm()
_shadowed()
