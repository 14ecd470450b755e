"""The bodies that the tests submit, each as a plain function and as a coroutine function of the same behaviour.

They are importable, so that they reach worker processes by name. A body waits for a mark on its stage; while it
waits, it looks at its abort signal unless its name says otherwise.
"""

import asyncio
import contextvars
import sys
import time
from types import SimpleNamespace

from patience import TICK_S, until_async
from whywait.task.context import current

colour = contextvars.ContextVar("colour", default="none")


class Oops(ValueError):  # noqa: N818 - users name theirs as they like
    """An error of the user's own."""

    def __init__(self, message, code=0):
        super().__init__(message, code)
        self.code = code


class Thing:
    """Something that a weak reference can watch."""

    def __init__(self, name):
        self.name = name


def value(given=None):
    """Return what was given."""
    return given


async def value_async(given=None):
    await asyncio.sleep(0)
    return given


def add(first, second=0, *, third=0):
    """Return the sum."""
    return first + second + third


async def add_async(first, second=0, *, third=0):
    return first + second + third


def make_thing(name):
    """Return something new."""
    return Thing(name)


async def make_thing_async(name):
    return Thing(name)


def name_of(thing):
    """Return nothing of the argument but its name."""
    return thing.name


async def name_of_async(thing):
    return thing.name


def fail(message, code=0):
    """Raise an error of the user's own."""
    raise Oops(message, code)


async def fail_async(message, code=0):
    raise Oops(message, code)


def raise_it(error):
    """Raise the given error."""
    raise error


async def raise_it_async(error):
    raise error


def flaky(stage, name, times):
    """Fail so many times, then return how often it was called."""
    stage.mark(name)
    calls = stage.count(name)
    if calls <= times:
        raise Oops(f"call {calls}")
    return calls


async def flaky_async(stage, name, times):
    return flaky(stage, name, times)


def see_colour():
    """Return the context variable as the body sees it."""
    return colour.get()


async def see_colour_async():
    return colour.get()


def paint(new):
    """Set the context variable; return what it was."""
    old = colour.get()
    colour.set(new)
    return old


async def paint_async(new):
    return paint(new)


def my_ref():
    """Return the body's own ref."""
    return current().ref


async def my_ref_async():
    await asyncio.sleep(0)
    return current().ref


def my_devices():
    """Return the units of the body."""
    return current().devices


async def my_devices_async():
    await asyncio.sleep(0)
    return current().devices


def note(stage, name, given=None):
    """Mark and return what was given."""
    stage.mark(name)
    return given


async def note_async(stage, name, given=None):
    stage.mark(name)
    return given


def line(stage, name, text):
    """Write a line of text."""
    stage.mark(name, text)


async def line_async(stage, name, text):
    stage.mark(name, text)


def hold(stage, name, gate):
    """Run until the gate is marked or the abort signal fires; never park."""
    signal = current().signal
    stage.mark(name)
    try:
        while not stage.has(gate):
            signal.wait(TICK_S)
            signal.raise_if_aborted()
    finally:
        stage.mark(f"{name}.left")
    return name


async def hold_async(stage, name, gate):
    stage.mark(name)
    try:
        await until_async(lambda: stage.has(gate))
    finally:
        stage.mark(f"{name}.left")
    return name


def steps(stage, name, gate):
    """Run in steps, with a checkpoint between them, until the gate is marked."""
    context = current()
    stage.mark(name)
    try:
        while not stage.has(gate):
            context.checkpoint()
            context.signal.wait(TICK_S)
        context.checkpoint()
    finally:
        stage.mark(f"{name}.left")
    return name


async def steps_async(stage, name, gate):
    context = current()
    stage.mark(name)
    try:
        while not stage.has(gate):
            await context.checkpoint_async()
            await asyncio.sleep(TICK_S)
        await context.checkpoint_async()
    finally:
        stage.mark(f"{name}.left")
    return name


def waits(stage, name, gate):
    """Wait for the gate without looking at the signal, as most code does."""
    stage.mark(name)
    try:
        while not stage.has(gate):
            time.sleep(TICK_S)
    finally:
        stage.mark(f"{name}.left")
    return name


waits_async = hold_async


def deaf(stage, name, gate):
    """Ignore every abort until the gate is marked."""
    stage.mark(name)
    while not stage.has(gate):
        time.sleep(TICK_S)
    stage.mark(f"{name}.left")
    return name


async def deaf_async(stage, name, gate):
    stage.mark(name)
    while not stage.has(gate):
        try:
            await asyncio.sleep(TICK_S)
        except asyncio.CancelledError:
            stage.mark(f"{name}.shrugged")
    stage.mark(f"{name}.left")
    return name


reluctant = deaf  # a plain function is told once and shrugs it off for good


async def reluctant_async(stage, name, gate):
    """Shrug off the first abort, give in to the second."""
    stage.mark(name)
    try:
        while not stage.has(gate):
            try:
                await asyncio.sleep(TICK_S)
            except asyncio.CancelledError:
                if stage.has(f"{name}.shrugged"):
                    raise
                stage.mark(f"{name}.shrugged")
    finally:
        stage.mark(f"{name}.left")
    return name


def meet(stage, name, amount, count):
    """Enter with an amount, stay until so many have entered in all, leave."""
    signal = current().signal
    stage.mark(name, amount)
    stage.mark(f"{name}.entered")
    try:
        while stage.count(f"{name}.entered") < count:
            signal.wait(TICK_S)
            signal.raise_if_aborted()
    finally:
        stage.mark(name, -amount)


async def meet_async(stage, name, amount, count):
    stage.mark(name, amount)
    stage.mark(f"{name}.entered")
    try:
        await until_async(lambda: stage.count(f"{name}.entered") >= count)
    finally:
        stage.mark(name, -amount)


def submit_more(authority, fn, *args):
    """Submit a task from inside this one; return its handle."""
    return authority.submit(fn, *args)


async def submit_more_async(authority, fn, *args):
    return authority.submit(fn, *args)


def in_form(form, module=sys.modules[__name__]):
    """Return all bodies of a module in the plain or in the coroutine form."""
    own = {name: fn for name, fn in vars(module).items() if getattr(fn, "__module__", None) == module.__name__}
    forms = {name.removesuffix("_async"): fn for name, fn in own.items() if name.endswith("_async")}
    if form == "plain":
        forms = {name: own[name] for name in forms}
    return SimpleNamespace(**forms)
