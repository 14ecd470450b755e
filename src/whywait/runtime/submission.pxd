cimport cython

from whywait.runtime.core cimport Core, admit_task
from whywait.runtime.execution cimport Execution
from whywait.runtime.handle cimport new_handle
from whywait.runtime.terms cimport ScopeRecord, Terms

cdef object _OF_ONE_TASK, _MISSING

@cython.locals(core=Core, record=ScopeRecord, handle=Execution, plain=bint, terms=Terms, last=tuple)
cpdef object submit_call(object scope, object fn, tuple args, dict options)
cdef bint _is_same(dict options, dict others) except -1
