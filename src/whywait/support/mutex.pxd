cimport cython

cdef extern from *:
    """
    #include <stdlib.h>
    #include "pythread.h"

    typedef struct {
        PyThread_type_lock lock;
        unsigned long owner;  /* the thread that has it; set by that thread alone */
        unsigned long count;  /* how often it has taken it */
    } CoreLock;

    static CYTHON_INLINE CoreLock *make_lock(void) {
        CoreLock *made = (CoreLock *)calloc(1, sizeof(CoreLock));
        if (made != NULL && (made->lock = PyThread_allocate_lock()) == NULL) {
            free(made);
            made = NULL;
        }
        return made;
    }

    static CYTHON_INLINE void free_lock(CoreLock *lock) {
        PyThread_free_lock(lock->lock);
        free(lock);
    }

    static CYTHON_INLINE int is_locked_here(CoreLock *lock) {
        return lock->count && lock->owner == PyThread_get_thread_ident();
    }

    static CYTHON_INLINE int take_lock(CoreLock *lock) {
        unsigned long me = PyThread_get_thread_ident();
        if (lock->count && lock->owner == me) {
            lock->count++;
            return 1;
        }
        if (!PyThread_acquire_lock(lock->lock, NOWAIT_LOCK)) return 0;
        lock->owner = me;
        lock->count = 1;
        return 1;
    }

    static CYTHON_INLINE void give_lock(CoreLock *lock) {
        if (--lock->count == 0) {
            lock->owner = 0;
            PyThread_release_lock(lock->lock);
        }
    }

    /* Wait in steps, so that a signal that comes between two looks is handled soon. */
    static CYTHON_INLINE int wait_for_lock(CoreLock *lock, double timeout_s) {
        long long left_us = timeout_s < 0 ? -1 : (long long)(timeout_s * 1e6);
        for (;;) {
            long long step_us = left_us < 0 || left_us > 100000 ? 100000 : left_us;
            PyLockStatus got;
            Py_BEGIN_ALLOW_THREADS
            got = PyThread_acquire_lock_timed(lock->lock, step_us, 1);
            Py_END_ALLOW_THREADS
            if (got == PY_LOCK_ACQUIRED) {
                lock->owner = PyThread_get_thread_ident();
                lock->count = 1;
                return 1;
            }
            if (PyErr_CheckSignals() < 0) return -1;
            if (got == PY_LOCK_FAILURE && left_us >= 0 && (left_us -= step_us) <= 0) return 0;
        }
    }
    """
    ctypedef struct CoreLock:
        pass
    CoreLock *make_lock()
    void free_lock(CoreLock *lock)
    bint is_locked_here(CoreLock *lock)
    bint take_lock(CoreLock *lock)
    void give_lock(CoreLock *lock)
    bint wait_for_lock(CoreLock *lock, double timeout_s) except -1

@cython.final
cdef class Mutex:
    cdef CoreLock* lock
    cpdef bint acquire(self, bint blocking=*, double timeout=*) except -1
    cpdef release(self)

cdef bint _IS_COMPILED

@cython.locals(mutex=Mutex)
cpdef bint take(object lock) except -1
@cython.locals(mutex=Mutex)
cpdef give(object lock)
cpdef bint is_taken_here(object lock) except -1
