cimport cython

from whywait.kernel.model cimport Task

cdef class Execution(Task):
    cdef public object core, fn, context, engine, value, facts
    cdef public tuple args
    cdef public dict kwargs
    cdef public bint attention, done
    cdef public list callbacks, waiters
    cdef public Task retry_task
    cpdef Execution of(self, object core, object fn, tuple args, object context, object engine)
    cpdef object run(self, object runner, object engine)
    cpdef list resolved_args(self)
    cpdef retried(self, Task task)
    cpdef let_go(self)
    cpdef release_waiters(self)
    cpdef run_callbacks(self)
