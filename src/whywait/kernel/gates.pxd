cimport cython

cdef class Gate:
    cdef public object kind, name, scope_key, limit, use_ns
    cdef public bint soft, is_budget, is_slots
    cdef public dict benches
    cdef public long long free
    cpdef resize(self, long long limit, long long in_use)
    cpdef bint closed(self, long long need, bint no_slot_held) except -1
    cpdef bint can_never_pass(self, long long need) except -1
    cpdef room(self, bint no_slot_held)
