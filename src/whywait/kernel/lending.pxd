cimport cython

from whywait.kernel.base cimport Base, tell, count_holder, no_slot_held
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Task

cpdef blocked(Base k, long long now, Task task, Task on)
cpdef want_no_more(Base k, Task task)
@cython.locals(task=Task)
cpdef return_slots(Base k, long long now)
@cython.locals(gate=Gate)
cdef bint _are_free(Task task) except -1
@cython.locals(gate=Gate)
cpdef take_again(Base k, long long now, Task task)
cpdef count_lender(Base k, Task task, int more)
@cython.locals(gate=Gate)
cdef _lend(Base k, long long now, Task task)
cdef _open(Base k, long long now, Gate gate)
