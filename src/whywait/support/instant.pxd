cdef extern from *:
    """
    #include <time.h>
    static CYTHON_INLINE long long c_clock_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    """
    long long c_clock_ns()

cdef bint _HAS_C_CLOCK

cpdef long long now_ns() except -1
