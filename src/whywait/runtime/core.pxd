cimport cython

from whywait.kernel cimport ending, entering, starting
from whywait.kernel.base cimport Base, Decision
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Scope as KernelScope
from whywait.kernel.collector cimport hide
from whywait.kernel.model cimport Lane, Task
from whywait.kernel.timers cimport Timers
from whywait.engines.thread cimport EngineThread
from whywait.runtime.clock cimport Clock
from whywait.runtime.execution cimport Execution, drop_body, release_waiters, run_body
from whywait.runtime.terms cimport ScopeRecord, Terms
from whywait.runtime.watching cimport Watching
from whywait.support.instant cimport now_ns
from whywait.support.mutex cimport give, is_taken_here, take

cdef object _REJECTED, _SUCCESS, SUCCEEDED
cdef Decision _NOTHING
cdef int _UNTOUCHED, _BEGUN, _CHANGED, _OVER

cdef class Core(Watching):
    cdef public object settings, log, journal, began_ns, broken
    cdef public Clock clock
    cdef public Base kernel
    cdef public dict scopes, survivors, pause_waiters
    cdef public set gone
    cdef public list when_broken
    cdef public bint midst, is_failing, has_failed
    cdef public Gate slots
    cdef public Timers _timers, _expiries
    cpdef ask_and_tell(self, Decision decision, list ended)
    @cython.locals(execution=Execution, by_engine=dict)
    cdef start_bodies(self, list started, Execution go_on)
    @cython.locals(execution=Execution, ended=list)
    cdef list settle(self, Decision decision)
    @cython.locals(timers=list, expiries=list, at_ns="long long")
    cdef bint is_sooner(self) except -1
    cpdef deliver_events(self)

@cython.locals(kernel=Base, decision=Decision, stage=int, now="long long", ended=list, lane=Lane, is_plain=bint)
cpdef admit_task(Core core, Execution execution, KernelScope scope, Terms terms, object name=*, object after=*, object after_ended=*)
@cython.locals(kernel=Base, decision=Decision, stage=int, now="long long", ended=list, go_on=Execution, first=Execution, retried=Task)
cpdef Execution report_end(Core core, Execution execution, object outcome=*, object engine=*, object later=*)
@cython.locals(execution=Execution)
cpdef carry_out_tasks(Core core, EngineThread runner, object engine)
cpdef tell_end(Core core, Execution execution)
cpdef cancel_task(Core core, Execution execution)

cdef _submit(Base kernel, long long now, KernelScope scope, Terms terms, object name, object after, object after_ended, Execution execution)
cdef _dispatch(Base kernel, long long now, Decision decision)
cdef _fail(Core core, object error, object decision, object reported=*)
cdef object _current_error()
