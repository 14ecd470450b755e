cimport cython

from whywait.kernel.model cimport Scope as KernelScope
from whywait.kernel.model cimport Task
from whywait.runtime.core cimport Core, ScopeRecord
from whywait.runtime.execution cimport Execution

cdef object _OF_ONE_TASK, _NO_OPTIONS

@cython.locals(core=Core, record=ScopeRecord, execution=Execution, plain=bint, asked=tuple)
cpdef object submit_call(object scope, object fn, tuple args, dict options)
@cython.locals(parts=list, key=tuple)
cpdef tuple prepare(Core core, ScopeRecord record, Execution execution, dict options, object what=*, object known=*)
@cython.locals(found=list, kept=list, awaited=list)
cpdef object await_handles(Core core, ScopeRecord record, Execution execution, object ended=*)
