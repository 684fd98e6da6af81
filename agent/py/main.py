"""The resident process of a wisbox sandbox: the stream, the timers, the pumps.

It speaks the protocol of package agent (doc.go) on descriptors 0 and 1. It runs
no user code; for that it has monitors, each a child subreaper, so that its
descendants are exactly its program's tree, however they fork.

Each process is a fork of this one, or of a fork of it: so the modules used are
the light ones, those in C where the Python around them is large.
"""
import gc
import os
import select
import struct
import time
from _collections import deque
from _heapq import heappop, heappush

from . import launch
from .calls import Call, key_of
from .cgroup import Events, hello, limits
from .direct import Direct
from .kernel import RT, give_up_rights
from .slots import START, Pool, Slots
from .streams import Streams
from .wire import (CREDIT, CTL_IN, CTL_OUT, CHUNK, DATA, EXIT, HEAD, HELLO, KILL, LIMITS, LIMITS_ARE, MAX_FRAME, MOVE, PING, PONG,
                   RESIZE, RUN, SIGNAL, SOURCE, STDERR, STDIN, STDOUT, TAIL, Lost, to_json)

OVERDUE = 0.4                # seconds a monitor has to end its tree before the agent does


class Agent(Streams, Slots):
    def __init__(self, once):
        Streams.__init__(self)
        Slots.__init__(self, once)
        self.epoll, self.handlers = select.epoll(), {}
        self.calls, self.timers, self.tick, self.deadlines = {}, [], 0, {}
        self.room, self.inbuf = memoryview(bytearray(CHUNK)), bytearray()
        self.out, self.out_size = deque(), 0
        self.writing, self.done = False, False
        self.events, self.direct = Events(), None

    # ---- stream

    def serve(self, gaps):
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self.watch(0, select.EPOLLIN, self.read_host)
        gc.collect()
        gc.freeze()
        gc.disable()
        self.fill(self.pools[""])
        self.direct = Direct()                   # after the forks: none has it
        self.send(HELLO, 0, to_json(hello(gaps, self.direct.told())).encode())
        while not (self.done and not self.out):
            self.flush()
            for fd, event in self.epoll.poll(self.patience()):
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler(event)
            self.ring()

    def patience(self):
        """Seconds until something is due, -1 when nothing is."""
        due = min(self.deadlines.values(), default=None)
        if self.timers:
            due = self.timers[0][0] if due is None else min(due, self.timers[0][0])
        return -1 if due is None else max(0.0, due - time.monotonic())

    def ring(self):
        if self.deadlines:
            now = time.monotonic()
            for number in [n for n, due in self.deadlines.items() if due <= now]:
                del self.deadlines[number]
                self.end(self.calls[number], "timed_out")
        while self.timers and self.timers[0][0] <= time.monotonic():
            heappop(self.timers)[2]()

    def watch(self, fd, events, handler):
        self.handlers[fd] = handler
        self.epoll.register(fd, events)

    def unwatch(self, fd):
        if self.handlers.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def after(self, seconds, action):
        self.tick += 1
        heappush(self.timers, (time.monotonic() + seconds, self.tick, action))

    def read_host(self, event):
        try:
            n = os.readv(0, [self.room])
        except BlockingIOError:
            return
        if n == 0:
            raise Lost("end of stream")
        buf, at = self.inbuf, 0
        buf += self.room[:n]
        while len(buf) - at >= HEAD.size:
            length, kind, number = HEAD.unpack_from(buf, at)
            if length > MAX_FRAME:
                raise Lost("frame too large")
            if len(buf) - at < HEAD.size + length:
                break
            at += HEAD.size
            self.frame(kind, number, bytes(buf[at:at + length]))
            at += length
        del buf[:at]

    def send(self, kind, number, payload=b""):
        self.out.append(HEAD.pack(len(payload), kind, number) + payload)
        self.out_size += HEAD.size + len(payload)

    def flush(self, event=0):
        while self.out:
            try:
                n = os.writev(1, [self.out[i] for i in range(min(len(self.out), 64))])
            except BlockingIOError:
                if not self.writing:
                    self.writing = True
                    self.watch(1, select.EPOLLOUT, self.flush)
                return
            except OSError:
                raise Lost("write to host")
            self.out_size -= n
            self.written(n)
        if self.writing:
            self.writing = False
            self.unwatch(1)
        if self.stalled:
            self.resume()

    def written(self, n):
        while n:
            first = self.out.popleft()
            if len(first) > n:
                self.out.appendleft(memoryview(first)[n:])
                return
            n -= len(first)

    # ---- frames

    def frame(self, kind, number, payload):
        call = self.calls.get(number)
        channel = kind & 0x0f
        if kind == RUN:
            self.run(number, payload)
        elif kind == PING:
            self.send(PONG, number, payload)
        elif kind == MOVE and self.direct:
            self.move(number, payload)
        elif kind == LIMITS:
            self.send(LIMITS_ARE, number, to_json(limits()).encode())
        elif kind == SOURCE:
            name, _, source = payload.partition(b"\n")
            key, _, name = name.decode().partition(" ")
            if key in self.pools:
                raise Lost("python source given twice")
            self.pools[key] = Pool(1, name, source)
        elif kind & 0xf0 == DATA and channel in (STDIN, CTL_IN):
            if call and channel in call.ins:
                if channel == CTL_IN and call.before is not None:
                    call.before = self.events.read()  # for a new request: what was before is not its doing
                self.feed(call.ins[channel], payload)
        elif kind & 0xf0 == CREDIT and len(payload) == 4 and channel in (STDOUT, STDERR, CTL_OUT):
            if call and channel in call.outs:
                self.credit(call.outs[channel], struct.unpack(">I", payload)[0])
        elif kind == KILL:
            if call:
                self.end(call, payload.decode("ascii", "replace") or "cancelled")
        elif kind == SIGNAL and len(payload) == 1:
            if call and call.slot and 0 < payload[0] <= 30:
                call.slot.doomed = True
                self.signal(call.slot, RT + payload[0])
        elif kind == RESIZE and len(payload) == 4:
            if call and call.tty and STDOUT in call.outs:
                launch.set_size(call.outs[STDOUT].fd, struct.unpack(">HH", payload))
        else:
            raise Lost("unknown frame")

    def move(self, number, payload):
        self.unwatch(0)
        self.direct.move()
        self.direct = None
        self.watch(0, select.EPOLLIN, self.read_host)
        self.send(PONG, number, payload)

    def run(self, number, payload):
        if number in self.calls:
            raise Lost("call number used twice")
        pool = self.pools.get(key_of(payload))
        if pool is None:
            raise Lost("unknown python source")
        slot = pool.ready.popleft() if pool.ready else None
        if slot:                                 # first of all: the program waits for nothing else
            self.request(slot, payload)
        call = self.calls[number] = Call(number, payload)
        if slot:
            self.dispatch(call, slot)
        else:
            pool.waiting.append(call)
            self.fill(pool)
            self.after(START, lambda: self.no_process(call, pool))

    # ---- the end of a call

    def end(self, call, reason):
        """Has the call's tree killed; what is told of it comes with the report."""
        if call.number not in self.calls or call.reason or call.report:
            return
        call.reason = reason
        slot = call.slot
        if slot:
            slot.doomed = True
            self.signal(slot, 15)
            self.after(OVERDUE, lambda: slot.call is call and self.give_up(slot))
        else:
            self.pools[call.key].waiting.remove(call)
            self.finish(call)

    def ended(self, call):
        call.lasted = time.monotonic_ns() - call.began
        self.close_streams(call)

    def finish(self, call):
        del self.calls[call.number]
        self.deadlines.pop(call.number, None)
        for channel, tail in call.tails:
            for at in range(0, len(tail), CHUNK):
                self.send(TAIL | channel, call.number, tail[at:at + CHUNK])
        self.send(EXIT, call.number, call.verdict(self.events).encode())
        call.ins.clear()                         # they hold the call: there is no collector here
        self.done = self.done or self.once


def serve(once, workspace):
    launch.WORKSPACE = os.path.realpath(workspace)
    agent = Agent(once)
    try:
        agent.serve(give_up_rights())
    except (Lost, UnicodeDecodeError, struct.error):
        pass                                     # the host is gone or speaks another language
    except BaseException:
        import traceback
        traceback.print_exc()                    # for the log of whoever holds our stderr
    finally:
        agent.shut()
        os._exit(0)
