cimport cython

from whywait.kernel.accounts cimport Ceiling
from whywait.kernel.benches cimport Bench
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Lane, Level, Task

@cython.final
cdef class Levels:
    cdef public object order
    cdef public long long step_ns
    cdef public Ceiling ceiling
    cdef public int in_use
    cdef public list _by_rank, heap, beside, _steps
    cdef public dict opening
    cdef public Lane alone
    @cython.locals(level=Level, ceiling=Ceiling)
    cpdef Level level_of(self, int rank)
    @cython.locals(ceiling=Ceiling)
    cpdef update(self, Level level)
    @cython.locals(steps=list, place=tuple, right=tuple, level=Level, lane=Lane, at="long long")
    cpdef Lane first(self, long long now, bint no_slot_held, list heap)
    cpdef Lane earlier(self, long long now, Lane lane, Lane other)
    cpdef tuple sort_key(self, long long now, Task task)
    @cython.locals(place=tuple, heap=list)
    cpdef offer(self, long long now, Level level, Lane lane)
    @cython.locals(bench=Bench, level=Level, oldest=Lane)
    cpdef opened(self, long long now, Gate gate, bint no_slot_held)
    @cython.locals(head=Task, waited="long long", at="long long")
    cdef tuple _place(self, long long now, Level level, Lane lane)
    @cython.locals(steps=list, at="long long", rank=int, level=Level, lane=Lane)
    cdef _lift(self, long long now)
