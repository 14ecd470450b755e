cimport cython

from whywait.kernel cimport waiting
from whywait.kernel.base cimport Base, tell
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Task, add_wait

cpdef pause(Base k, long long now, Task task)
cpdef parked(Base k, long long now, Task task)
cpdef resume(Base k, long long now, Task task)
cpdef stopped(Base k, long long now, Task task, bint is_stopped)
cdef _hold_timeout(Base k, long long now, Task task)
cdef _rest(Base k, long long now, Task task)
cdef _park(Base k, long long now, Task task)
cdef _go_on(Base k, long long now, Task task)
cpdef note(Base k, long long now, Task task, object kind, object details)
cpdef overdraw(Base k, long long now, Task task, Gate gate, object amount)
cpdef forget_run_timers(Base k, Task task)
