cimport cython

from whywait.kernel cimport ending, entering, starting
from whywait.kernel.base cimport Base, Decision
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Scope as KernelScope
from whywait.kernel.model cimport Task
from whywait.kernel.timers cimport Timers
from whywait.runtime.execution cimport Execution
from whywait.runtime.watching cimport Watching

cdef object _REJECTED, _SUCCESS, SUCCEEDED
cdef Decision _NOTHING
cdef int _UNTOUCHED, _BEGUN, _CHANGED, _OVER

@cython.final
cdef class ScopeRecord:
    cdef public KernelScope kernel_scope
    cdef public object engine, plain_engine, coroutine_engine, scope, grace_s
    cdef public list errors
    cdef public dict terms

cdef class Core(Watching):
    cdef public object settings, log, journal, clock, began_ns, broken
    cdef public Base kernel
    cdef public dict scopes, survivors, pause_waiters
    cdef public set gone
    cdef public list when_broken
    cdef public bint midst, is_failing, has_failed
    cdef public Gate _slots
    cdef public Timers _timers, _expiries
    @cython.locals(kernel=Base, decision=Decision, stage=int, now="long long", ended=list)
    cpdef admit(self, Execution execution, KernelScope scope, object name=*, object priority=*, object demand=*, object after=*, object after_ended=*, object policy=*, bint slot=*)
    @cython.locals(kernel=Base, decision=Decision, stage=int, now="long long", ended=list, go_on=Execution, job=Execution, task=Task, new=Task, retried=Task)
    cpdef Execution report(self, Execution execution, object outcome=*, object engine=*, object later=*)
    cpdef tell(self, Execution execution)
    cpdef ask_and_tell(self, Decision decision, list ended)
    @cython.locals(job=Execution, by_engine=dict)
    cdef _start_bodies(self, Decision decision, Execution go_on)
    @cython.locals(execution=Execution, ended=list)
    cdef list _settle(self, Decision decision)
    cdef bint _is_sooner(self) except -1
    cpdef deliver_events(self)

cdef _dispatch(Base kernel, long long now, Decision decision)
cdef _fail(Core core, object error, object decision, object reported=*)
cdef object _current_error()
