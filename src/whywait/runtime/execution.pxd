cimport cython

from whywait.engines.thread cimport EngineThread
from whywait.kernel.collector cimport show
from whywait.kernel.model cimport Task

cdef object _SUCCESS, SUCCEEDED

cdef class Execution(Task):
    cdef public object core, fn, context, engine, value, facts
    cdef public tuple args
    cdef public dict kwargs
    cdef public bint attention, is_done
    cdef public list callbacks, waiters

cpdef set_up(Execution execution, object core, object fn, tuple args, object context, object engine)
cpdef object run_body(Execution execution, EngineThread runner, object engine, object caller)
cpdef object result_of(Execution execution, object timeout)
cpdef drop_body(Execution execution)
cpdef release_waiters(Execution execution)
