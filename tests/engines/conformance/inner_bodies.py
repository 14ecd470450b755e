"""Bodies that use what a running task has: streams, handlers, workers, queues; in both forms, like `bodies`."""

import asyncio
import os
import signal as signals
import time

from bodies import Oops

from patience import TICK_S, until_async
from whywait import current
from whywait.errors import InvalidTransition

LIMIT = 4  # chunks of the streams below


# Streams


def emits(stage, count, gate=None):
    """Put out numbers, marking each; at half of them wait for a gate, if there is one."""
    output = current().stream("main", limit=LIMIT)
    for number in range(count):
        if gate is not None and number == count // 2:
            hold_until(stage, gate)
        output.emit(number)
        stage.mark("emitted")
    return count


async def emits_async(stage, count, gate=None):
    output = current().stream("main", limit=LIMIT)
    for number in range(count):
        if gate is not None and number == count // 2:
            await until_async(lambda: stage.has(gate))
        await output.emit_async(number)
        stage.mark("emitted")
    return count


def emits_many(count):
    """Put out numbers without a limit of its own."""
    for number in range(count):
        current().emit(number)


async def emits_many_async(count):
    for number in range(count):
        await current().emit_async(number)


def emits_named():
    """Put out into two streams."""
    context = current()
    for number in range(3):
        context.emit(number, "numbers")
        context.emit(str(number), "words")


async def emits_named_async():
    context = current()
    for number in range(3):
        await context.emit_async(number, "numbers")
        context.emit(str(number), "words")


def emits_and_fails(stage, times):
    """Put out the number of the attempt, and fail so many times."""
    stage.mark("attempt")
    attempt = stage.count("attempt")
    current().emit(attempt)
    if attempt <= times:
        raise Oops(f"attempt {attempt}")


async def emits_and_fails_async(stage, times):
    emits_and_fails(stage, times)


def hold_until(stage, gate):
    """Wait for a gate in a plain function, looking at the signal and at checkpoints."""
    context = current()
    while not stage.has(gate):
        context.checkpoint()
        context.signal.wait(TICK_S)
    context.checkpoint()


# Handlers


def seen(stage, name, *given):
    """Mark and return what was given."""
    stage.mark("order", name)
    return [name, *given]


def meets(stage, name, other):
    """Wait until the other is there too."""
    stage.mark(name)
    hold_until(stage, other)
    return name


def oops(stage, *_):
    """Fail."""
    stage.mark("failed")
    raise Oops("inside")


def stays(stage, name="stays"):
    """Stay until the task should end; mark why."""
    stage.mark(name)
    signal = current().signal
    while not signal.wait(TICK_S):
        pass
    stage.mark(f"{name}.left", signal.reason)
    signal.raise_if_aborted()


def graph(stage):
    """Handlers that form a diamond; their results travel along."""
    context = current()
    top = context.handler(seen, stage, "top")
    left, right = context.handler(seen, stage, "left", top), context.handler(seen, stage, "right", after=[top])
    return context.handler(seen, stage, "end", left, right).result()


async def graph_async(stage):
    async def seen_here(name, *given):
        await asyncio.sleep(0)
        return seen(stage, name, *given)

    context = current()
    top = context.handler(seen_here, "top")
    left, right = context.handler(seen_here, "left", top), context.handler(seen, stage, "right", after=[top])
    return await context.handler(seen_here, "end", left, right)


def pair(stage):
    """Two handlers that need each other at the same time; the body does not wait for them."""
    context = current()
    context.handler(meets, stage, "a", "b")
    context.handler(meets, stage, "b", "a")
    return "body"


async def pair_async(stage):
    return pair(stage)


def one_fails(stage, own_gate="never"):
    """One handler fails, one stays, one would come after; the body waits."""
    context = current()
    context.handler(stays, stage)
    bad = context.handler(oops, stage)
    context.handler(seen, stage, "after", after=[bad])
    hold_until(stage, own_gate)


async def one_fails_async(stage, own_gate="never"):
    context = current()
    context.handler(stays, stage)
    bad = context.handler(oops, stage)
    context.handler(seen, stage, "after", after=[bad])
    await until_async(lambda: stage.has(own_gate))


def body_fails(stage):
    """A handler and a worker stay; the body fails."""
    context = current()
    context.handler(stays, stage, "handler")
    context.spawn(stays, stage, "worker")
    while not (stage.has("handler") and stage.has("worker")):
        time.sleep(TICK_S)
    raise Oops("body")


async def body_fails_async(stage):
    context = current()
    context.handler(stays, stage, "handler")
    context.spawn(stays, stage, "worker")
    await until_async(lambda: stage.has("handler") and stage.has("worker"))
    raise Oops("body")


def own_ref(stage):
    """Return the ref that a handler and a worker see, and their task's."""
    context = current()
    return [context.ref, context.handler(ref_here).result(), context.spawn(ref_here).result()]


async def own_ref_async(stage):
    async def ref_there():
        await asyncio.sleep(0)
        return current().ref

    context = current()
    return [context.ref, await context.handler(ref_there), await context.spawn(ref_here)]


def ref_here():
    """Return the ref of the task."""
    return current().ref


def parks_in_handler(stage, gate):
    """A handler that goes on until a gate opens, with checkpoints."""
    current().handler(holds_handler, stage, gate)


async def parks_in_handler_async(stage, gate):
    current().handler(holds_handler, stage, gate)


def holds_handler(stage, gate):
    """Be such a handler."""
    stage.mark("handler")
    hold_until(stage, gate)
    stage.mark("handler.left")


# Workers


def doubles(inbox, outbox):
    """Serve: take a number, give twice of it and the process id."""
    while True:
        outbox.put((2 * inbox.get(), os.getpid()))


def serves(process):
    """Let two workers do the work; return it, and whether they were in processes of their own."""
    context = current()
    inbox, outbox = context.queue("in", limit=2), context.queue("out")
    for _ in range(2):
        context.spawn(doubles, inbox, outbox, process=process)
    for number in range(6):
        inbox.put(number)
    answers = sorted(outbox.get() for _ in range(6))
    return [answer for answer, _ in answers], os.getpid() not in {pid for _, pid in answers}


async def serves_async(process):
    context = current()
    inbox, outbox = context.queue("in", limit=2), context.queue("out")
    for _ in range(2):
        context.spawn(doubles, inbox, outbox, process=process)
    for number in range(6):
        await inbox.put_async(number)
    answers = sorted([await outbox.get_async() for _ in range(6)])
    return [answer for answer, _ in answers], os.getpid() not in {pid for _, pid in answers}


def hires(stage, fn, process):
    """Spawn one worker and return when it has begun; what becomes of it is the task's business."""
    current().spawn(fn, stage, process=process)
    while not stage.has("stays") and not stage.has("failed"):
        time.sleep(TICK_S)
    return "body"


async def hires_async(stage, fn, process):
    current().spawn(fn, stage, process=process)
    await until_async(lambda: stage.has("stays") or stage.has("failed"))
    return "body"


def waits_for_worker(stage, fn, process):
    """Spawn one worker and wait for the task to be asked to end."""
    current().spawn(fn, stage, process=process)
    hold_until(stage, "never")


async def waits_for_worker_async(stage, fn, process):
    current().spawn(fn, stage, process=process)
    await until_async(lambda: stage.has("never"))


def dies(stage):
    """Be killed from outside."""
    stage.mark("failed")
    os.kill(os.getpid(), signals.SIGKILL)


def ignores(stage):
    """Ignore everything."""
    stage.mark("stays", os.getpid())
    while True:
        time.sleep(TICK_S)


def worker_emits(stage):
    """Put out from a worker process."""
    for number in range(10):
        current().emit(number)
    stage.mark("stays")


def spawns_when_aborted(stage):
    """Try to spawn and to add a handler after the abort; mark what happens."""
    context = current()
    stage.mark("a")
    context.signal.wait()
    for add in (context.spawn, context.handler):
        try:
            add(seen, stage, "x")
        except Exception as error:  # noqa: BLE001 - its name is what the test asks for
            stage.mark("refused", type(error).__name__)


async def spawns_when_aborted_async(stage):
    context = current()
    stage.mark("a")
    try:
        await asyncio.sleep(60)
    finally:
        for add in (context.spawn, context.handler):
            try:
                add(seen, stage, "x")
            except Exception as error:  # noqa: BLE001 - its name is what the test asks for
                stage.mark("refused", type(error).__name__)


def gives_context():
    """Return the context itself, to be used after the end."""
    return current()


async def gives_context_async():
    return current()


def opens(stage, when):
    """Try to open one of each, and mark what is raised; return how many were opened."""
    context = current()
    opened = 0
    for open_one in (
        lambda: context.spawn(seen, stage, when),
        lambda: context.handler(seen, stage, when),
        lambda: context.stream(when),
    ):
        try:
            open_one()
            opened += 1
        except Exception as error:  # noqa: BLE001 - its text is what the test asks for
            stage.mark("refused", str(error))
    stage.mark("tried")
    return opened


def opens_while_parked(stage):
    """A handler parks; the body tries to open more, and again when the task runs on."""
    context = current()
    context.handler(holds_handler, stage, "gate")
    while not stage.has("parked"):
        time.sleep(TICK_S)
    opens(stage, "parked")
    while context.signal.pause_asked:
        time.sleep(TICK_S)
    context.checkpoint()
    stage.mark("gate")
    return "opened" if opens(stage, "running") == 3 else "refused"


async def opens_while_parked_async(stage):
    context = current()
    context.handler(holds_handler, stage, "gate")
    await until_async(lambda: stage.has("parked"))
    opens(stage, "parked")
    await until_async(lambda: not context.signal.pause_asked)
    await context.checkpoint_async()
    stage.mark("gate")
    return "opened" if opens(stage, "running") == 3 else "refused"


def opens_until_refused(stage):
    """Open streams, once the task is parked, until that is refused: word of it comes a moment later."""
    stage.mark("stays")
    context = current()
    while not stage.has("parked"):
        time.sleep(TICK_S)
    number = 0
    while not stage.has("refused"):
        number += 1
        try:
            context.stream(str(number))
        except InvalidTransition as error:
            stage.mark("refused", str(error))
        time.sleep(TICK_S)
    stays(stage)


def gives_queue():
    """Return a queue of the task, with an item in it."""
    queue = current().queue("items")
    queue.put(1)
    return queue


async def gives_queue_async():
    return gives_queue()


_kept = []


def keeps_queue(stage):
    """Keep a queue and fail; at the second attempt, use it. Return what it says, and how much the new one has."""
    stage.mark("attempt")
    if stage.count("attempt") == 1:
        _kept[:] = [gives_queue()]
        raise Oops("first")
    try:
        _kept[0].get()
    except InvalidTransition:
        return ["is over", len(current().queue("items"))]
    return ["gave", 0]


async def keeps_queue_async(stage):
    return keeps_queue(stage)


def waits_for_items(stage):
    """Wait for an item on an event loop, then for one that never comes; mark what is got, and what is raised."""
    queue = current().queue("items", limit=1)

    async def main():
        await queue.put_async("item")
        return await queue.get_async()

    stage.mark("left", asyncio.run(main()))
    stage.mark("stays")
    try:
        queue.get()
    except Exception as error:
        stage.mark("left", type(error).__name__)
        raise


# Signals


def says_reason(stage):
    """Mark why it should end, from a thread of its own."""
    stage.mark("a")
    signal = current().signal
    signal.wait()
    stage.mark("reason", signal.reason)


async def says_reason_async(stage):
    context = current()
    stage.mark("a")
    try:
        await asyncio.sleep(60)
    finally:
        stage.mark("reason", context.signal.reason)


def pauses_then_fails(stage):
    """Fail once a pause is asked for; succeed at the second attempt."""
    stage.mark("attempt")
    if stage.count("attempt") > 1:
        return "again"
    stage.mark("a")
    while not current().signal.pause_asked:
        time.sleep(TICK_S)
    raise Oops("first")


async def pauses_then_fails_async(stage):
    stage.mark("attempt")
    if stage.count("attempt") > 1:
        return "again"
    stage.mark("a")
    await until_async(lambda: current().signal.pause_asked)
    raise Oops("first")
