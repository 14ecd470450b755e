cimport cython

from whywait.kernel cimport ending, graph
from whywait.kernel.base cimport Base, tell, tell_of
from whywait.kernel.model cimport Lane, Scope, Task, rank_of, task_for
from whywait.kernel.waiting cimport become_ready, lane_of, take_in

cdef object _SUBMITTED

@cython.locals(lane=Lane, task=Task)
cpdef Task submit(Base k, long long now, Scope scope, object name=*, object priority=*, object demand=*, object after=*, object after_ended=*, object policy=*, bint slot=*, object job=*)
cpdef remember(Base _, long long now, Scope scope, object name, object outcome)
@cython.locals(scope=Scope, each=Scope)
cpdef register(Task task, object name, bint counts=*)
@cython.locals(failed=Task, seq="long long")
cdef _place(Base k, long long now, Task task, object found)
@cython.locals(lane=Lane)
cpdef long long tell_submitted(Base k, long long now, Task task, object cause=*) except -1
@cython.locals(victim=Task)
cpdef displace(Base k, long long now, object victims)
@cython.locals(lane=Lane)
cpdef object check(Base k, Scope scope, object name, tuple key, object after=*, object after_ended=*, object batch=*, Py_ssize_t index=*, bint kept=*)
