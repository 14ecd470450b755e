cimport cython

from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Task

cdef object _STARTED, _FINISHED, _SUCCESS

@cython.final
cdef class Tally:
    cdef public list log
    cdef public dict final, peaks, devices, causes, attempts
    cdef public object ms, ready_ns, skips, roots, past_timeout, starvation_timeout_ns
    cdef public Py_ssize_t running_peak
    cdef public set _asked
    @cython.locals(kind=object)
    cpdef emit(self, tuple event)
    @cython.locals(task=Task, ready=object, gate=Gate)
    cpdef start(self, list tasks, object kernel)
    @cython.locals(task=Task)
    cpdef settle(self, object tasks)
