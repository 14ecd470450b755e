cimport cython

from whywait.kernel.accounts cimport Ceiling, Epoch, Segment, Waited, ready_wait
from whywait.kernel.base cimport Base, tell, count_holder, no_slot_held
from whywait.kernel.benches cimport Bench
from whywait.kernel.gates cimport Gate
from whywait.kernel.levels cimport Levels
from whywait.kernel.model cimport Lane, Level, Scope, Task, add_wait, add_waits
from whywait.kernel.stats cimport Stats
from whywait.kernel.timers cimport Timers

cdef object _QUEUED, _READY, _PAUSED, _DEPENDENCY, _TURNED_READY

@cython.locals(scope=Scope, stats=Stats, number=object)
cpdef take_in(Base k, long long now, Task task, Lane lane, object policy)
@cython.locals(scope=Scope, stack=list)
cpdef count_in(Task task)
cpdef begin(Task task)
@cython.locals(lane=Lane, level=Level, levels=Levels, segment=Segment, number="long long", entry="long long")
cpdef become_ready(Base k, long long now, Task task)
@cython.locals(task=Task)
cpdef wake(Base k, long long now, list tasks, long long cause)
cpdef leave_queue(Task task)
cpdef limit_wait(Base k, long long now, Task task)
cpdef stop_waiting(Base k, long long now, Task task)
@cython.locals(lane=Lane, gate=Gate)
cpdef leave(Base k, long long now, Task task, bint lane_is_cleared=*)
cpdef clear(Base k, long long now, Lane lane)
cpdef cancel_wait_timer(Task task, Timers timers)
@cython.locals(waited="long long", level=Level, levels=Levels, segment=Segment, entered=Segment, epoch=Epoch, waits=Waited, starved="long long")
cpdef charge(Base k, long long now, Task task, Lane lane)
@cython.locals(segment=Segment)
cpdef forget_entry(Task task, Level level)
cpdef charge_queued(long long now, Task task)
@cython.locals(scope=Scope, lane=Lane, level=Level, key=tuple, needs=tuple)
cpdef Lane lane_of(Base k, long long now, Scope scope, tuple key)
@cython.locals(task=Task, ceiling=Ceiling)
cpdef count_holders(Base k, long long now)
@cython.locals(each=Lane, kept=list, levels=dict)
cpdef lane_emptied(Base k, long long now, Lane lane)
@cython.locals(bench=Bench)
cpdef on_bench(Lane lane, Gate gate)
@cython.locals(level=Level, bench=Bench)
cpdef off_bench(Lane lane, Gate gate)
@cython.locals(segment=Segment)
cpdef next_epoch(Base k, long long now, Lane lane, Gate gate)
cpdef reset_epoch(Base k, long long now, Lane lane)
@cython.locals(lane=Lane)
cpdef forget_blocker(Base k, long long now)
