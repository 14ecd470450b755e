cimport cython

from whywait.kernel cimport ending
from whywait.kernel.base cimport Base, tell
from whywait.kernel.gates cimport Gate
from whywait.kernel.model cimport Task
from whywait.kernel.running cimport overdraw

@cython.locals(gate=Gate)
cpdef measured(Base k, long long now, Task task, object ram)
