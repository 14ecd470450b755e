cimport cython

from whywait.kernel.gates cimport Gate

cdef object _SLOT, _SLOT_HIGHER, _HELD_BACK

@cython.final
cdef class Waited:
    cdef public long long slot, slot_higher, held_back
    cdef public dict gates
    @cython.locals(gates=dict)
    cpdef add(self, object cause, long long ns)
    cpdef add_all(self, Waited other, int sign)
    cpdef object only_cause(self)
    cpdef object total(self)
    cpdef dict by_cause(self)

@cython.final
cdef class Segment:
    cdef public long long since, slot, slot_higher, held_back, starved
    cdef public object mode
    cdef public bint higher
    @cython.locals(waited=Waited)
    cpdef Waited waited(self, long long at, Segment begin, long long since)
    cpdef long long starved_at(self, long long at) noexcept

@cython.final
cdef class Ceiling:
    cdef public int top
    cdef public bint held
    cdef public long long since, version, _whole_free_ns, _whole_held_ns
    cdef public list _free_ns, _held_ns
    @cython.locals(more="long long")
    cpdef change(self, long long now, int top, bint held)
    @cython.locals(free_ns="long long", held_ns="long long", at=int, starved="long long", slot_higher="long long", higher=bint)
    cpdef Segment segment(self, int priority)
    @cython.locals(new=Segment, at="long long", same=bint, since=Waited)
    cpdef Segment segment_after(self, Segment before, int priority)

cdef long long _above(list spent_ns, long long whole_ns, int at) except? -1
cpdef object wait_mode(bint higher, bint held)

@cython.final
cdef class Epoch:
    cdef public long long since
    cdef public Gate gate
    cdef public Segment segment
    cdef public Waited base
    @cython.locals(totals=Waited)
    cpdef Waited totals(self, long long at, Segment segment)

@cython.locals(waits=Waited)
cpdef Waited ready_wait(long long since, Epoch epoch, Segment segment, long long now, Epoch lane, Segment level)
