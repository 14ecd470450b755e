cimport cython

from whywait.kernel.accounts cimport Epoch, Segment, Waited
from whywait.kernel.benches cimport Bench
from whywait.kernel.fifo cimport Fifo, Item
from whywait.kernel.gates cimport Gate
from whywait.kernel.pool cimport Pool
from whywait.kernel.timers cimport Timer

cdef object _QUEUED, _READY, _RUNNING, _PAUSED, _SUSPENDED

cdef class Task(Item):
    cdef public long long unmet, starved_ns, started_seq, wait_ns
    cdef public object job, number, name, policy, called, state, outcome, cause, wait_cause
    cdef public Scope scope
    cdef public Lane lane
    cdef public Segment segment
    cdef public Epoch epoch
    cdef public list after, successors
    cdef public Waited more_waits
    cdef public bint plain

@cython.locals(first=object, waits=Waited)
cpdef add_wait(Task task, object cause, long long ns)
@cython.locals(cause=object)
cpdef add_waits(Task task, Waited waits)
cpdef Task task_for(object job)

@cython.final
cdef class Lane(Fifo):
    cdef public Scope scope
    cdef public Level level
    cdef public tuple key, asks, needs, takes, slots, details, queued_details, told_cause
    cdef public bint takes_slot, plain, gated, feasible, forgotten, watched
    cdef public object demand, queued, bench_key
    cdef public Gate parked_at
    cdef public Epoch epoch
    cdef public long long told
    @cython.locals(other=Gate)
    cpdef object need(self, Gate gate)

@cython.final
cdef class Level:
    cdef public int rank, priority, effective
    cdef public Py_ssize_t place
    cdef public bint takes_slot
    cdef public list heap, opening, watch
    cdef public object among, first_step_ns, entered_ns
    cdef public Segment segment
    cdef public long long version, step_at, entry
    cdef public Timer starve_timer
    @cython.locals(heap=list, lane=Lane, other=Lane, head=Task, key="long long", entry="long long", gate=Gate, bench=Bench)
    cpdef Lane first(self, bint no_slot_held)

@cython.final
cdef class Scope:
    cdef public object key, limits, policy, state
    cdef public Pool pool
    cdef public Scope parent
    cdef public bint freely_open, limited, activated
    cdef public dict children, tasks, ids, lanes, periodics, by_priority
    cdef public long long triggers, spawned, pending
    cdef public tuple chain, counted, aborting, state_gates, gates
    cdef public Gate state_gate, slot_gate
    @cython.locals(scope=Scope)
    cpdef list subtree(self)

cpdef int rank_of(int priority, bint slot) noexcept
