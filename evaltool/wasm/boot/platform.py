# What Python's standard library lacks on WASI: an event loop without sockets, processor time, and the formats of strftime
# that other C libraries know. Everything replaces a function of the library, so that all code finds it.

import functools
import os
import re
import time


def event_loops():
    """Makes asyncio's loops wait for timers only, and run the functions of executors at once."""
    import asyncio

    class Timers:
        def select(self, timeout):
            if timeout is None:
                raise RuntimeError("what is awaited can never happen: nothing else runs here")
            if timeout > 0:
                time.sleep(timeout)
            return []

        def close(self):
            pass

    class Loop(asyncio.BaseEventLoop):
        def __init__(self):
            super().__init__()
            self._selector = Timers()

        def _process_events(self, events):
            pass

        def _write_to_self(self):
            pass

        def run_in_executor(self, executor, function, *args):
            if executor is not None:
                return super().run_in_executor(executor, function, *args)
            done = self.create_future()
            try:
                done.set_result(function(*args))
            except Exception as problem:
                done.set_exception(problem)
            return done

        async def shutdown_default_executor(self, timeout=None):
            pass

    class Policy(asyncio.DefaultEventLoopPolicy):
        _loop_factory = Loop

    asyncio.set_event_loop_policy(Policy())


class ProcessorTime:
    """The time since the first evaluation without sleeps. The C library's own counts in other
    units than it says."""

    begin = None
    slept = 0

    @classmethod
    def now(cls):
        return time.monotonic_ns() - (cls.begin or 0) - cls.slept


def process_time_ns():
    return ProcessorTime.now()


def process_time():
    return ProcessorTime.now() / 1e9


def times():
    return os.times_result((ProcessorTime.now() / 1e9, 0.0, 0.0, 0.0, time.monotonic()))


def sleeping(plain):
    @functools.wraps(plain)
    def sleep(seconds, /):
        begin = time.monotonic_ns()
        try:
            plain(seconds)
        finally:
            ProcessorTime.slept += time.monotonic_ns() - begin

    return sleep


DIRECTIVE = re.compile(r"%([_\-0^#]*)(\d*)([EO]?)(.?)", re.DOTALL)
NUMBERS = "CdgGHIjmMsSuUVwWyY"  # which a width fills with zeros
DIRECTIVES = "aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyYzZ%"  # of this C library


def formatting(plain):
    @functools.wraps(plain)
    def strftime(format, moment=None, /):
        moment = time.localtime() if moment is None else moment

        def directive(found):
            flags, width, modifier, letter = found.groups()
            padding = flags.replace("^", "").replace("#", "")
            if letter == "P":
                text = plain("%p", moment).lower()
            elif letter in ("k", "l"):
                text = plain("%" + (padding or "_") + {"k": "H", "l": "I"}[letter], moment)
            elif letter and letter in DIRECTIVES:
                text = plain(f"%{padding}{modifier}{letter}", moment)
            else:  # glibc returns what it doesn't know
                text = found[0]
            if width:
                zeros = "0" in flags or not padding and letter and letter in NUMBERS
                text = text.rjust(min(int(width), 1000), "0" if zeros else " ")
            if "^" in flags:
                text = text.upper()
            elif "#" in flags:
                text = text.lower() if letter in "pZ" else text.upper()
            return text.replace("%", "%%")

        if not isinstance(format, str) or "\0" in format:
            return plain(format, moment)
        return plain(DIRECTIVE.sub(directive, format), moment)

    return strftime


def complete_library():
    event_loops()
    time.process_time, time.process_time_ns, os.times = process_time, process_time_ns, times
    time.sleep, time.strftime = sleeping(time.sleep), formatting(time.strftime)
