cimport cython

from whywait.kernel.accounts cimport Waited

cdef Py_ssize_t _ROOM
cdef long long _MUCH
cdef object _SUCCESS, _ABORTED

@cython.final
cdef class WaitSums:
    cdef public dict _sums
    cdef public object _cause
    cdef public Waited _divided
    cdef public long long _ns
    cpdef add(self, object cause, long long ns, Waited more)
    cpdef dict by_cause(self)

@cython.final
cdef class Stats:
    cdef public long long numbered, iterations, retried, starved, succeeded, _aborted
    cdef public dict _ended, dropped, rejected
    cdef public object promotions
    cdef public WaitSums waits, unstarted
    cdef public list _recent
    cdef public Py_ssize_t _recent_at
    @cython.locals(recent=list, at=Py_ssize_t)
    cpdef count_wait(self, object cause, long long ns, Waited more)
    cpdef count_end(self, object outcome)
    cpdef count_drop(self, object cause)
    cpdef count_rejection(self, object cause)
