cimport cython

@cython.final
cdef class Stats:
    cdef public long long numbered, iterations, retried, starved, succeeded, _cause_ns
    cdef public dict _ended, dropped, rejected, _wait_ns, unstarted_ns
    cdef public object promotions, _cause
    cdef public list _recent
    cdef public Py_ssize_t _recent_at
    @cython.locals(recent=list, at=Py_ssize_t)
    cpdef count_wait(self, object cause, long long ns, dict more)
    cdef _flush(self)
    cpdef count_end(self, object outcome)
    cpdef count_unstarted(self, dict waits)
    cpdef count_drop(self, object cause)
    cpdef count_rejection(self, object cause)
