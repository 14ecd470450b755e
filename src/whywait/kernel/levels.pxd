cimport cython

from whywait.kernel.accounts cimport Ceiling
from whywait.kernel.benches cimport Bench
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Lane, Level, Task

@cython.final
cdef class LevelHeap:
    cdef public list levels
    cpdef put(self, Level level, int effective, long long entry)
    @cython.locals(place=Py_ssize_t, last=Level)
    cpdef drop(self, Level level)
    @cython.locals(levels=list, place=Py_ssize_t, below=Py_ssize_t, count=Py_ssize_t, parent=Level, child=Level)
    cdef _settle(self, Level level)

cdef bint _is_before(Level level, Level other) noexcept

@cython.final
cdef class Levels:
    cdef public object order
    cdef public long long step_ns
    cdef public Ceiling ceiling
    cdef public int in_use
    cdef public list _by_rank, _steps
    cdef public LevelHeap heap, beside
    cdef public dict opening
    cdef public Lane alone
    @cython.locals(level=Level, ceiling=Ceiling)
    cpdef Level level_of(self, int rank)
    @cython.locals(ceiling=Ceiling)
    cpdef update(self, Level level)
    @cython.locals(steps=list, levels=list, level=Level, lane=Lane)
    cpdef Lane first(self, long long now, bint no_slot_held, LevelHeap heap)
    cpdef Lane earlier(self, long long now, Lane lane, Lane other)
    cpdef tuple sort_key(self, long long now, Task task)
    cpdef offer(self, long long now, Level level, Lane lane)
    @cython.locals(bench=Bench, level=Level, oldest=Lane)
    cpdef opened(self, long long now, Gate gate, bint no_slot_held)
    @cython.locals(head=Task, heap=LevelHeap, waited="long long", at="long long", priority=int, effective=int)
    cdef _put(self, long long now, Level level, Lane lane)
    @cython.locals(steps=list, at="long long", rank=int, level=Level, lane=Lane)
    cdef _lift(self, long long now)
