cimport cython

from whywait.kernel.accounts cimport Waited
from whywait.kernel.collector cimport hide

cdef object _SUBMITTED

@cython.final
cdef class Row:
    cdef public long long time_ns, number, cause, ns, starved_ns
    cdef public object kind, scope, name, details, word

@cython.final
cdef class Ring:
    cdef public Py_ssize_t size, at
    cdef public list rows
    @cython.locals(rows=list, at=Py_ssize_t, row=Row)
    cpdef add(self, long long time_ns, object kind, object scope, long long number, object name, long long cause, object details, object word, long long ns, long long starved_ns)

cpdef tuple raw_event(long long seq, long long time_ns, object kind, object scope, long long number, object name, long long cause, object details, object word, long long ns, long long starved_ns)
