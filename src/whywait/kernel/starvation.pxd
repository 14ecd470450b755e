cimport cython

from whywait.kernel.accounts cimport Segment
from whywait.kernel.levels cimport Levels
from whywait.kernel.model cimport Lane, Level, Task
from whywait.kernel.stats cimport Stats
from whywait.kernel.timers cimport Timer, Timers

cdef object _READY

@cython.final
cdef class Starvation:
    cdef public long long _timeout_ns, _worst_floor, _kept, tasks, longest_ns
    cdef public object _tell, total_ns
    cdef public Timers _timers
    cdef public Levels _levels
    cdef public Stats _stats
    cdef public dict _unarmed, _returned
    cdef public list _worst
    @cython.locals(worst=list, first=object, before_ns="long long", in_all_ns="long long")
    cpdef note(self, Task task, long long starved_ns)
    cpdef lane_entered(self, long long now, Lane lane, long long entry)
    cpdef lanes_forgotten(self, object levels)
    @cython.locals(level=Level)
    cpdef task_returned(self, long long now, Task task)
    @cython.locals(lane=Lane, level=Level, task=Task)
    cpdef object signals(self, long long now, object lanes)
    cdef object _since_entry(self, long long now, Task task)
    @cython.locals(top=int, level=Level)
    cpdef ceiling_rose(self, long long now)
    @cython.locals(total="long long")
    cpdef fire(self, long long now, Level level)
    @cython.locals(timer=Timer, at="long long")
    cdef _arm(self, long long now, Level level)
    @cython.locals(task=Task, starved="long long")
    cdef _look(self, long long now, Lane lane, long long total)
    cdef _report(self, long long now, Task task, object starved_ns)
    cdef _watch(self, long long now, Level level, long long starved, long long entry, object watched)

@cython.locals(segment=Segment)
cdef long long _total_at_entry(Task task) except? -1
