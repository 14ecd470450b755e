cimport cython

from whywait.kernel.base cimport Base, tell_of, no_slot_held
from whywait.kernel.model cimport Scope

cpdef mount_scope(Base k, long long now, Scope scope)
cpdef suspend(Base k, long long now, Scope scope)
cpdef resume(Base k, long long now, Scope scope)
