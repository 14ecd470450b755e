cimport cython

from whywait.kernel.model cimport Lane
from whywait.kernel.model cimport Scope as KernelScope

@cython.final
cdef class Terms:
    cdef public object priority, demand, policy, engine
    cdef public bint slot
    cdef public tuple kinds
    cdef public Lane lane

cdef class ScopeRecord:
    cdef public KernelScope kernel_scope
    cdef public Terms plain_terms
    cdef public tuple last
    cdef public object engine, plain_engine, coroutine_engine, scope, grace_s
    cdef public list errors
    cdef public dict terms
