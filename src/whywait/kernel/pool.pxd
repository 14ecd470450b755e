cimport cython

@cython.final
cdef class Pool:
    cdef public object _scope_key
    cdef public dict resources, devices
    cdef public list soft
    cpdef bint knows(self, object name) except -1
    cpdef add_missing(self, object demand)
