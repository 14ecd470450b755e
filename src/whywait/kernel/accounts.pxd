# The types of accounts.py for the compiled core; times are in nanoseconds and stay objects, causes too: they are members of an enum.

cdef class Segment:
    cdef public object since
    cdef public object mode
    cdef public bint higher
    cdef public object slot
    cdef public object slot_higher
    cdef public object held_back
    cdef public object starved

cdef class Epoch:
    cdef public object since
    cdef public object gate
    cdef public Segment segment
    cdef public dict base
