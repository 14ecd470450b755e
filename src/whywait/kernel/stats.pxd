cimport cython

@cython.final
cdef class Stats:
    cdef public long long numbered, iterations, retried, starved
    cdef public dict by_outcome, dropped, rejected, wait_ns, unstarted_ns
    cdef public object promotions, recent_waits_ns
    cpdef count_wait(self, object cause, long long ns, dict more)
    cpdef count_unstarted(self, dict waits)
    cpdef count_drop(self, object cause)
    cpdef count_rejection(self, object cause)
