cimport cython

@cython.final
cdef class EngineThread:
    cdef public object empty, execution, thread
