# The types of fifo.py for the compiled core.

cdef class _Gone:
    cdef public object entry
    cdef public object since

cdef class Fifo:
    cdef public list front
    cdef public list rest
    cdef public Py_ssize_t _moved
    cdef public Py_ssize_t _gone
    cdef public dict _gone_in
