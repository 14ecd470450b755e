cimport cython

from whywait.kernel.model cimport Task

@cython.locals(dependency=Task, awaited=list, successors=list)
cpdef Task link(Task task, object after, object after_ended)
@cython.locals(woken=list, task=Task)
cpdef list met(list successors)
@cython.locals(each=Task, found=list)
cpdef tuple numbers(object dependencies)
@cython.locals(found=dict, stack=list, root=Task, task=Task, parent=Task, successors=list)
cpdef list descendants(object roots)
@cython.locals(dependency=Task)
cpdef unlink(Task task)
cdef list _living(list tasks)
cdef list _with(list tasks, Task task)
