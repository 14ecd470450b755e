cimport cython

from whywait.kernel cimport graph, lending, waiting
from whywait.kernel.events cimport cause_details, outcome_details
from whywait.kernel.base cimport Base, tell, tell_of, count_holder, no_slot_held
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Lane, Scope, Task
from whywait.kernel.stats cimport Stats
from whywait.kernel.running cimport forget_run_timers, pause, stopped

cdef object _READY, _RUNNING, _DISPOSED, _DISPOSING_SCOPE, _SUCCESS, _ABORTED, _FINISHED, _CANCELLED, _REJECTED

@cython.locals(lane=Lane, scope=Scope, running=dict, ran_ns=object, gate=Gate, need="long long", led_by="long long", seq="long long", each=Scope)
cpdef Task end_running(Base k, long long now, Task task, object outcome, object cause=*, bint retryable=*, object facts=*, object streams=*)
@cython.locals(gate=Gate)
cdef _give_more_back(Base k, long long now, Lane lane, Task task)
@cython.locals(seq="long long")
cpdef long long ask_abort(Base k, long long now, Task task, object outcome, object cause, long long led_by=*) except -1
cpdef abort(Base k, long long now, Task task, object outcome, object cause, long long led_by=*)
@cython.locals(scope=Scope, stats=Stats, old_lane=Lane)
cdef _retry(Base k, long long now, Task task, object retry, long long led_by)
cdef Lane _grown_lane(Base k, long long now, Task task, object retry)
cpdef cancel(Base k, long long now, Task task, object cause=*)
@cython.locals(seq="long long")
cpdef long long end_pending(Base k, long long now, Task task, object outcome, object cause, object root=*, long long led_by=*, bint lane_is_cleared=*) except -1
cpdef end_with_dependents(Base k, long long now, Task task, object outcome, object cause, long long led_by=*)
@cython.locals(scope=Scope)
cpdef count_out(Task task)
@cython.locals(scope=Scope)
cpdef finish(Base k, long long now, Task task, object outcome)
@cython.locals(task=Task, doomed=list)
cpdef take_down(Base k, long long now, list ended, object root, long long led_by)
@cython.locals(task=Task, woken=list)
cdef _wake_after_end(Base k, long long now, object ended, long long led_by)
@cython.locals(woken=list)
cdef _tell_dependents(Base k, long long now, Task task, long long led_by)
@cython.locals(allowed=Task)
cdef _end_iteration(Base k, long long now, Task task, object periodic)
@cython.locals(task=Task)
cpdef switch_off(Base k, long long now, object periodic, object reason)
cpdef stop_ticks(Base k, object periodic)
@cython.locals(each=Scope)
cpdef dispose(Base k, long long now, Scope scope)
@cython.locals(task=Task, each=Scope)
cpdef end_inside(Base k, long long now, list doomed, long long seq)
@cython.locals(task=Task, lane=Lane, others=list)
cdef list _end_tasks(Base k, long long now, Scope scope, object running, long long led_by)
cdef _finish_disposal(Base k, long long now, Scope scope, long long led_by)
