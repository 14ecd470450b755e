cdef class Watching:
    cdef public object lock
    cdef public list watchers
    cdef object __weakref__
    cpdef tell_watchers(self)
