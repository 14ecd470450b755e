cdef class Watching:
    cdef public object lock
    cdef public list _watchers
    cdef object __weakref__
    cpdef tell_watchers(self)
