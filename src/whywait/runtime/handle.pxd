from whywait.runtime.execution cimport Execution, result_of, set_up

cpdef object new_handle(object core, object fn, tuple args, object context, object engine)
