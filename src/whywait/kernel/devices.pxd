cimport cython

from whywait.kernel.gates cimport Gate

@cython.final
cdef class Unit:
    cdef public object name, size, used, peak, use_ns
    cdef public Py_ssize_t rank
    cdef public bint is_present, is_whole, is_lowered
    cdef public dict holders

@cython.final
cdef class Door(Gate):
    cdef public Devices devices

@cython.final
cdef class Devices:
    cdef public object name, scope_key, memory
    cdef public dict by_name, doors
    cdef public list units, _shared, _empty
