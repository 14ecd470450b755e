cdef class Watching:
    cdef public object lock, take, give
    cdef public list watchers
    cdef object __weakref__
    cpdef tell_watchers(self)
