"""Handlers of coroutines that are tried again."""

import asyncio

from patience import PATIENCE_S, until
from whywait import Authority, current


class OopsError(Exception):
    pass


def test_a_failed_handler_does_not_cancel_the_next_attempt():
    """T7, W2: the loop comes to what the handler asked of the first attempt when the second one has begun."""
    attempts = []

    def fail():
        raise OopsError

    async def body():
        attempts.append(None)
        if len(attempts) == 1:
            part = current().handler(fail)
            until(lambda: not part._parts._alive, "the end of the handler")  # the loop does nothing else meanwhile
            raise OopsError
        for _ in range(5):
            await asyncio.sleep(0)
        return len(attempts)

    with Authority() as authority:
        assert authority.submit(body, retry=1).result(PATIENCE_S) == 2
