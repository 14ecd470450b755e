cimport cython

@cython.final
cdef class Timer:
    cdef public long long at
    cdef public object kind, target
    cdef public bint live

@cython.final
cdef class Timers:
    cdef public list heap
    cdef public long long _created, _dead
    @cython.locals(timer=Timer)
    cpdef Timer add(self, long long at, object kind, object target)
    cpdef cancel(self, Timer timer)
    @cython.locals(heap=list, timer=Timer)
    cpdef object next_at(self)
    @cython.locals(timer=Timer)
    cpdef Timer pop_due(self, long long now)
