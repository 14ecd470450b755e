cimport cython

from whywait.kernel.base cimport Decision
from whywait.kernel.model cimport Task
from whywait.simulation.tally cimport Tally

cdef object _RUNNING, _SUCCESS
cdef long long _LAST_NS, _NEVER_NS

@cython.final
cdef class VirtualEngine:
    cdef public object _kernel, _fixed, _workload, _progress, _order
    cdef public Tally _tally
    cdef public list _times, _bound, _stops
    cdef public dict _buckets, _ends, _left, _known, _scopes, _failing
    cdef public set _accepted, _named
    cdef public tuple _durations
    cdef public long long _done, _next_task, _next_op, _unit_ns
    @cython.locals(now="long long", agenda_at="long long", times=list, buckets=dict, due=bint, tally=Tally)
    cpdef run(self)
    @cython.locals(at=object, unit_ns=object)
    cdef object _next_on_agenda(self)
    @cython.locals(task=Task, failing=dict, tasks=list)
    cdef bint _complete(self, long long now, list bucket) except -1
    @cython.locals(task=Task, durations=tuple, buckets=dict, ends=dict, unit_ns=object, duration=object, end=object, tasks=list)
    cdef _carry_out(self, long long now, Decision decision)
    @cython.locals(before="long long", done="long long")
    cdef _count(self, long long more)
    @cython.locals(ms="long long")
    cdef _arrive(self, long long now)
    cdef _submit(self, long long now, long long index)
    cdef _obey(self, long long now)
