cimport cython

@cython.final
cdef class Clock:
    cdef public object _bell, _joining, _lock, _log, _order, _thread, _tick
    cdef public list _heap
    cdef public bint _closed, needs_thread
    cdef public long long kernel_at_ns
