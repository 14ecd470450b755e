cimport cython

cdef Py_ssize_t _SHORT

cdef class Item:
    cdef public long long entry, since

@cython.final
cdef class _Gone(Item):
    pass

cdef class Fifo:
    cdef public list front, rest
    cdef public Py_ssize_t _moved, _gone
    cdef public dict _gone_in
    @cython.locals(front=list)
    cpdef bint append(self, Item item) except -1
    @cython.locals(front=list)
    cpdef shift(self)
    @cython.locals(front=list, rest=list, last=Item, index=Py_ssize_t)
    cpdef bint remove(self, Item item) except -1
    cpdef clear(self)
    @cython.locals(head=Item)
    cpdef long long head_entry(self) except -1
    @cython.locals(front=list, item=Item)
    cpdef Py_ssize_t before(self, long long entry) except -1
    @cython.locals(front=list, rest=list, first=Py_ssize_t, index=Py_ssize_t, too=Py_ssize_t)
    cpdef Py_ssize_t count_ahead(self, long long since, long long since_too, long long entry) except -1
    @cython.locals(living=Py_ssize_t, block=Py_ssize_t)
    cdef Py_ssize_t _living_before(self, Py_ssize_t index) except -1
    @cython.locals(front=list, rest=list, block=list, start=Py_ssize_t, stop=Py_ssize_t)
    cdef _refill(self)
    cdef _start_anew(self)

cdef bint _is_ahead(Item item, long long since, long long since_too, long long entry) noexcept
@cython.locals(last=Py_ssize_t, middle=Py_ssize_t, item=Item)
cdef Py_ssize_t _place_of(list items, long long entry, Py_ssize_t first) except -1
