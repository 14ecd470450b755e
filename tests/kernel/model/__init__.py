"""A plain model of the scheduling rules: the same commands as the kernel, lists and scans everywhere.

Written from the text of the rules for obviousness, not for speed, and sharing no code with the kernel. Each file
adds the rules of one subject to the one before it: `base` (what is remembered, how time passes), `endings`,
`devices`, `admission`, `dispatch`, `scopes`, `periodics`. A rule stands in one place, with its number beside it.
"""

from .admission import Submission
from .periodics import Periodics as Model
from .records import Aging, Budget, Illegal, Limits, Periodic, Policy, Refused, Retry, Scope, Strict, Task

__all__ = [
    "Aging", "Budget", "Illegal", "Limits", "Model", "Periodic", "Policy", "Refused", "Retry", "Scope", "Strict",
    "Submission", "Task",
]  # fmt: skip
