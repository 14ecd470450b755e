cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object thing)
    void PyObject_GC_Track(object thing)
    int PyObject_GC_IsTracked(object thing)

cdef bint _IS_COMPILED

cpdef hide(object thing)
cpdef show(object thing)
