cimport cython

@cython.final
cdef class _Block:
    cdef public list keys, entries, lanes

@cython.final
cdef class Bench:
    cdef public bint opening
    cdef public list _blocks, _tops, _oldest
    @cython.locals(blocks=list, block=_Block, at=Py_ssize_t, index=Py_ssize_t)
    cpdef object add(self, object lane, object need, object entry)
    @cython.locals(block=_Block, at=Py_ssize_t, index=Py_ssize_t)
    cpdef remove(self, object key)
    @cython.locals(blocks=list, block=_Block, whole=Py_ssize_t, part=Py_ssize_t)
    cpdef object first(self, object room)
    @cython.locals(block=_Block, taken=list, whole=Py_ssize_t, part=Py_ssize_t)
    cpdef list take(self, object room)
    @cython.locals(block=_Block)
    cpdef object smallest_need(self)
    cpdef object oldest_entry(self)
    cdef object _bound(self, object room)
    @cython.locals(block=_Block, upper=_Block, lower=_Block, half=Py_ssize_t)
    cdef _split(self, Py_ssize_t at)
