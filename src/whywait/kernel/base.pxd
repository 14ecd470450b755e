cimport cython

from whywait.kernel.gates cimport Gate
from whywait.kernel.levels cimport Levels
from whywait.kernel.model cimport Lane, Scope, Task
from whywait.kernel.ring cimport Ring, raw_event
from whywait.kernel.starvation cimport Starvation
from whywait.kernel.stats cimport Stats
from whywait.kernel.timers cimport Timers

cdef tuple _BITS

@cython.final
@cython.freelist(8)
cdef class Decision:
    cdef public Task first
    cdef public list others
    cdef public object requests, settled, skipped
    cpdef start(self, Task task)

cdef class Base:
    cdef public object order, overdraft, pause_timeout_ns, starvation_timeout_ns, jitter, emit, holding
    cdef public bint greedy, counts_holders, is_recorded
    cdef public int highest
    cdef public Ring ring
    cdef public long long seq, trigger, entries, suspended, slotless, empty_lanes, periodics_added
    cdef public Scope root
    cdef public dict scopes, running, wanting, streams, resources, devices, changed
    cdef public list freed, requests, settled, skipped, soft, holders, lanes
    cdef public Gate slots
    cdef public Levels levels
    cdef public Lane blocker
    cdef public Timers timers, expiries
    cdef public Stats stats
    cdef public Starvation starvation

cpdef long long tell(Base k, long long now, object kind, Task task, long long cause=*, object details=*, object word=*, long long ns=*, long long starved_ns=*) except -1
cpdef long long tell_of(Base k, long long now, object kind, Scope scope, object name=*, long long cause=*, object details=*) except -1
@cython.locals(seq="long long")
cdef long long _add(Base k, long long now, object kind, object scope, long long number, object name, long long cause, object details, object word, long long ns, long long starved_ns) except -1
@cython.locals(before="long long", holders=list)
cpdef count_holder(Base k, int priority, int more)
cpdef bint no_slot_held(Base k) noexcept
