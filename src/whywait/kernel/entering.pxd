cimport cython

from whywait.kernel cimport ending, graph
from whywait.kernel.base cimport Base, tell, tell_of
from whywait.kernel.model cimport Lane, Scope, Task, rank_of, task_for
from whywait.kernel.waiting cimport become_ready, lane_of, take_in

cdef object _SUBMITTED, _QUEUED

@cython.final
cdef class Dependencies:
    cdef public list after, after_ended
    cdef public object failed, batch_after, batch_after_ended
    cdef public bint is_doomed

cdef Dependencies NO_DEPENDENCIES

@cython.locals(found=Dependencies, lane=Lane, task=Task)
cpdef Task submit(Base k, long long now, Scope scope, object name=*, object priority=*, object demand=*, object after=*, object after_ended=*, object policy=*, bint slot=*, object job=*)
@cython.locals(scope=Scope)
cpdef bint is_free(Lane lane) except -1
cpdef enter(Base k, long long now, Task task, Lane lane, object policy)
cpdef remember(Base _, long long now, Scope scope, object name, object outcome)
@cython.locals(scope=Scope, each=Scope)
cpdef register(Task task, object name, bint counts=*)
@cython.locals(failed=Task, seq="long long")
cdef _place(Base k, long long now, Task task, Dependencies found)
@cython.locals(lane=Lane)
cpdef long long tell_submitted(Base k, long long now, Task task, long long cause=*) except -1
@cython.locals(victim=Task)
cpdef displace(Base k, long long now, object victims)
@cython.locals(lane=Lane)
cpdef Dependencies check(Base k, Scope scope, object name, tuple key, object after=*, object after_ended=*, object batch=*, Py_ssize_t index=*, bint kept=*)
@cython.locals(found=Dependencies)
cdef Dependencies _find_dependencies(Base k, Scope scope, object name, object after, object after_ended, object batch)
@cython.locals(mates=list, where=Scope)
cdef tuple _find(Base k, Scope scope, object name, object given, object batch, list tasks)
