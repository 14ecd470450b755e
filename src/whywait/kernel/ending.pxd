cimport cython

from whywait.kernel cimport graph, lending, waiting
from whywait.kernel.base cimport Base, tell, tell_of, count_holder, no_slot_held
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Lane, Scope, Task
from whywait.kernel.running cimport forget_run_timers, pause, stopped

cdef object _READY, _RUNNING, _DISPOSED, _DISPOSING_SCOPE, _SUCCESS, _ABORTED, _FINISHED, _CANCELLED, _REJECTED

@cython.locals(lane=Lane, scope=Scope, running=dict, ran_ns=object, gate=Gate, need="long long", seq=object, new=Task, each=Scope)
cpdef Task end_running(Base k, long long now, Task task, object outcome, object cause=*, bint retryable=*, object facts=*, object streams=*)
@cython.locals(gate=Gate)
cdef _give_more_back(Base k, long long now, Lane lane, Task task)
@cython.locals(seq=object)
cpdef object ask_abort(Base k, long long now, Task task, object outcome, object cause, object led_by=*)
cpdef abort(Base k, long long now, Task task, object outcome, object cause, object led_by=*)
@cython.locals(scope=Scope, new=Task)
cdef Task _retry(Base k, long long now, Task task, object retry, object led_by)
cdef Lane _grown_lane(Base k, long long now, Task task, object retry)
cpdef cancel(Base k, long long now, Task task, object cause=*)
@cython.locals(seq=object)
cpdef object end_pending(Base k, long long now, Task task, object outcome, object cause, object root=*, object led_by=*, bint lane_is_cleared=*)
cpdef end_with_dependents(Base k, long long now, Task task, object outcome, object cause, object led_by=*)
@cython.locals(scope=Scope)
cpdef count_out(Task task)
@cython.locals(scope=Scope)
cpdef finish(Base k, long long now, Task task, object outcome)
@cython.locals(task=Task, doomed=list)
cpdef take_down(Base k, long long now, list ended, object root, object led_by)
@cython.locals(task=Task, woken=list)
cdef _wake_after_end(Base k, long long now, object ended, object led_by)
@cython.locals(woken=list)
cdef _tell_dependents(Base k, long long now, Task task, object led_by)
@cython.locals(allowed=Task)
cdef _end_iteration(Base k, long long now, Task task, object periodic)
@cython.locals(task=Task)
cpdef switch_off(Base k, long long now, object periodic, object reason)
cpdef stop_ticks(Base k, object periodic)
@cython.locals(each=Scope)
cpdef dispose(Base k, long long now, Scope scope)
@cython.locals(task=Task, each=Scope)
cpdef end_inside(Base k, long long now, list doomed, object seq)
@cython.locals(task=Task, lane=Lane, others=list)
cdef list _end_tasks(Base k, long long now, Scope scope, object running, object led_by)
cdef _finish_disposal(Base k, long long now, Scope scope, object led_by)
