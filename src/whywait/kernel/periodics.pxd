cimport cython

from whywait.kernel cimport ending, entering, waiting
from whywait.kernel.base cimport Base, tell_of
from whywait.kernel.model cimport Lane, Scope, Task, rank_of, task_for

cpdef tick(Base k, long long now, object periodic)
