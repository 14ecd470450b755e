cimport cython

from whywait.kernel.base cimport Base, tell_of, no_slot_held
from whywait.kernel.model cimport Lane
from whywait.kernel.starting cimport leave_bench, would_hold_back

@cython.locals(lane=Lane)
cdef _note_feasible(Base k, long long now)
