cimport cython

from whywait.kernel cimport ending, lending
from whywait.kernel.accounts cimport Ceiling
from whywait.kernel.base cimport Base, Decision, tell, tell_of, count_holder, no_slot_held
from whywait.kernel.benches cimport Bench
from whywait.kernel.gates cimport Gate
from whywait.kernel.levels cimport LevelHeap, Levels
from whywait.kernel.model cimport Lane, Level, Scope, Task
from whywait.kernel.timers cimport Timer
from whywait.kernel.waiting cimport (
    cancel_wait_timer, charge, forget_blocker, forget_entry, lane_emptied, next_epoch, off_bench, on_bench
)

cdef object _RUNNING, _STARTED

@cython.locals(ceiling=Ceiling, top=int, rises=bint)
cpdef Decision dispatch(Base k, long long now, Decision decision=*)
cpdef hand_over(Base k, Decision decision)
@cython.locals(gate=Gate, need="long long")
cpdef Gate closed_gate(Base k, Lane lane)
cpdef bint would_hold_back(Base k, Lane lane, Gate gate) noexcept
@cython.locals(slots=Gate, levels=Levels, beside=LevelHeap, counts_holders=bint, holds_back=Lane, lane=Lane, gate=Gate, task=Task)
cdef _fill(Base k, long long now, Decision started)
cpdef leave_bench(Base k, long long now, Lane lane)
@cython.locals(lane=Lane, gate=Gate, need="long long", cause=object, ns="long long", more=object, starved_ns="long long")
cpdef activate(Base k, long long now, Task task)
cdef _take_more(Base k, Lane lane, Task task)
cdef _begin_run(Base k, long long now, Task task)
@cython.locals(each=Scope)
cdef _first_activation(Base k, long long now, Scope scope)
@cython.locals(level=Level)
cdef _park(Base k, long long now, Lane lane, Gate gate)
@cython.locals(entry="long long")
cdef _open(Base k, long long now, Lane lane)
@cython.locals(level=Level, gate=Gate, bench=Bench, lane=Lane)
cdef _open_benches(Base k, long long now)
@cython.locals(gate=Gate, ceiling=Ceiling)
cdef _hold_back(Base k, long long now, Lane lane)
@cython.locals(lane=Lane, gate=Gate, ceiling=Ceiling)
cdef _let_pass(Base k, long long now)
@cython.locals(lane=Lane, gate=Gate)
cdef _tell_lanes(Base k, long long now)
@cython.locals(timer=Timer, task=Task)
cdef _expire(Base k, long long now)
