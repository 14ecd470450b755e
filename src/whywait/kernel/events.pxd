# Compiled, so that no signal comes in the midst of a command that calls it.
cpdef tuple cause_details(object cause)
cpdef tuple outcome_details(object outcome, object cause)
