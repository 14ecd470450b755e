cimport cython

from whywait.kernel.gates cimport Gate
from whywait.kernel.levels cimport Levels
from whywait.kernel.model cimport Lane, Scope, Task
from whywait.kernel.starvation cimport Starvation
from whywait.kernel.stats cimport Stats
from whywait.kernel.timers cimport Timers

cdef tuple _BITS

@cython.final
cdef class Decision(list):
    cdef dict __dict__

cdef class Base:
    cdef public object order, overdraft, pause_timeout_ns, starvation_timeout_ns, jitter, emit, trigger, holding, seq
    cdef public bint greedy, counts_holders, is_recorded
    cdef public int highest
    cdef public long long entries, suspended, slotless, empty_lanes, periodics_added
    cdef public Scope root
    cdef public dict scopes, running, wanting, streams, resources, devices, changed
    cdef public list freed, requests, settled, skipped, soft, holders, lanes
    cdef public Gate slots
    cdef public Levels levels
    cdef public Lane blocker
    cdef public Timers timers, expiries
    cdef public Stats stats
    cdef public Starvation starvation

@cython.locals(seq=object)
cpdef object tell(Base k, long long now, object kind, Task task, object cause, object details=*)
@cython.locals(seq=object)
cpdef object tell_of(Base k, long long now, object kind, Scope scope, object name=*, object cause=*, object details=*)
@cython.locals(before="long long", holders=list)
cpdef count_holder(Base k, int priority, int more)
cpdef bint no_slot_held(Base k) noexcept
