"""The streams of calls, between the host's frames and the programs' pipes."""
import fcntl
import os
import select
import struct
import termios
from _collections import deque

from .kernel import F_DUPFD_CLOEXEC, F_SETPIPE_SZ
from .wire import CHUNK, CREDIT, CTL_IN, CTL_OUT, DATA, STDERR, STDIN, STDOUT, WINDOW, Lost

BACKLOG = 512 << 10          # bytes queued for the host before programs wait
END_OF_FILE = b"\4"          # as typed on a terminal
REOPENED = 0.05              # seconds until a terminal that was closed is looked at again
DRAIN = 1 << 20              # bytes of the buffer that thrown-away output is read into


class Out:
    """One stream from a program: forwarded while it may be, then thrown away
    but for its tail."""
    __slots__ = ("call", "channel", "fd", "forward", "keep", "window", "total", "tail", "rest", "polled", "grown", "first")

    def __init__(self, call, channel, fd, forward, keep):
        self.call, self.channel, self.fd = call, channel, fd
        self.forward, self.keep = forward, keep  # bytes still to pass on (-1: all), bytes of tail to keep
        self.window, self.total, self.tail = WINDOW, 0, b""
        self.rest = None                         # once the tree is gone: bytes that the pipe may still hold
        self.polled, self.grown = False, False
        self.first = None                        # of a control channel: outputs and the totals that go before it


class In:
    """One stream to a program."""

    def __init__(self, call, channel):
        self.call, self.channel, self.fd = call, channel, -1
        self.queue, self.queued, self.eof = deque(), 0, False
        self.owed, self.polled, self.closed = 0, False, False


class Streams:
    """The part of the agent that pumps. It needs send, watch, unwatch, after and finish."""

    def __init__(self):
        self.stalled, self.drain = set(), None

    def connect(self, call, fds):
        """Joins the pipes to the call; those it doesn't use are closed."""
        if call.tty:
            for fd in fds[:3]:
                os.close(fd)
        else:
            self.add_in(call, STDIN, fds[0])
            self.add_out(call, STDOUT, fds[1], *call.bounds[:2])
            self.add_out(call, STDERR, fds[2], *call.bounds[2:])
        if len(fds) > 3:
            self.control(call, fds[3], fds[4])

    def control(self, call, in_fd, out_fd):
        self.add_in(call, CTL_IN, in_fd)
        self.add_out(call, CTL_OUT, out_fd, -1 if call.control else 0, 0)

    def terminal(self, call, master):
        os.set_blocking(master, False)
        if STDIN in call.ins:
            self.add_in(call, STDIN, fcntl.fcntl(master, F_DUPFD_CLOEXEC, 3))
        else:
            os.write(master, END_OF_FILE)
        self.add_out(call, STDOUT, master, *call.bounds[:2])

    def add_in(self, call, channel, fd):
        if channel in call.ins:
            call.ins[channel].fd = fd
            self.push(call.ins[channel])
        else:
            os.close(fd)

    def add_out(self, call, channel, fd, forward, keep):
        out = call.outs[channel] = Out(call, channel, fd, forward, keep)
        self.poll_out(out)

    def close_streams(self, call):
        """The tree is gone: what its pipes still hold is to be passed on."""
        for stream in list(call.ins.values()):
            self.close_in(stream)
        outs = list(call.outs.values())
        for out in outs:
            out.rest = DRAIN + CHUNK
        for out in outs:
            self.poll_out(out)
        if not outs:
            self.finish(call)

    # ---- from a program

    def poll_out(self, out):
        """Goes on with a stream: by epoll while its program lives, else to its end at once."""
        if out.rest is not None:
            while out.fd >= 0 and self.pump(out):
                pass
        elif out.fd >= 0 and not out.polled:
            out.polled = True
            self.watch(out.fd, select.EPOLLIN, lambda event: self.pump(out))

    def hold_out(self, out):
        if out.polled:
            out.polled = False
            self.unwatch(out.fd)
        return False

    def resume(self):
        stalled, self.stalled = self.stalled, set()
        for out in stalled:
            self.poll_out(out)

    def pump(self, out):
        """Moves one piece; false when there is nothing more to move now."""
        if out.channel == CTL_OUT and not self.is_next(out):
            return self.hold_out(out)
        if self.out_size > BACKLOG and out.forward:
            self.stalled.add(out)
            return self.hold_out(out)
        try:
            n = self.throw_away(out) if out.forward == 0 else self.pass_on(out)
        except BlockingIOError:
            return out.rest is not None and self.close_out(out)
        except OSError:                          # nobody has the terminal open now
            if out.rest is None:
                return self.look_later(out)
            n = 0
        if n is None:
            return self.hold_out(out)
        out.total += n
        if out.rest is not None:
            out.rest -= n
        if n == 0 or out.rest is not None and out.rest <= 0:
            return self.close_out(out)
        if n >= CHUNK and not out.grown:
            self.grow(out)
        return True

    def is_next(self, message):
        """Passes on what the program's outputs held when its message was seen: the
        host gets it first. False when that can't be now."""
        if message.first is None:
            message.first = [(out, out.total + pending(out.fd)) for out in message.call.outs.values()
                             if out is not message and not out.call.tty]
        for out, total in message.first:
            while out.fd >= 0 and out.total < total:
                if not self.pump(out) and out.fd >= 0:
                    if out in self.stalled:
                        self.stalled.add(message)
                    return False
        message.first = None
        return True

    def look_later(self, out):
        """A terminal that we closed would hang up its program, which may open it again."""
        self.after(REOPENED, lambda: self.poll_out(out))
        return self.hold_out(out)

    def pass_on(self, out):
        room = min(CHUNK, out.window) if out.forward < 0 else min(CHUNK, out.window, out.forward)
        if room <= 0:
            return None
        data = os.read(out.fd, room)
        if data:
            out.window -= len(data)
            if out.forward > 0:
                out.forward -= len(data)
            self.send(DATA | out.channel, out.call.number, data)
        return len(data)

    def throw_away(self, out):
        if self.drain is None:
            self.drain = memoryview(bytearray(DRAIN))
        n = os.readv(out.fd, [self.drain])
        if n >= out.keep:
            out.tail = bytes(self.drain[n - out.keep:n])
        else:
            out.tail = (out.tail + bytes(self.drain[:n]))[-out.keep:]
        return n

    def grow(self, out):
        out.grown = True
        try:
            fcntl.fcntl(out.fd, F_SETPIPE_SZ, DRAIN)
        except OSError:
            pass

    def close_out(self, out):
        self.hold_out(out)
        os.close(out.fd)
        out.fd = -1
        call = out.call
        del call.outs[out.channel]
        call.totals[out.channel] = out.total
        if out.tail:
            call.tails.append((out.channel, out.tail))
        if out.rest is not None and not call.outs:
            self.finish(call)
        return False

    def credit(self, out, n):
        out.window += n
        self.poll_out(out)
        message = out.call.outs.get(CTL_OUT)
        if message:                              # it may have waited for that
            self.poll_out(message)

    # ---- to a program

    def feed(self, stream, data):
        if data:
            stream.queue.append(data)
            stream.queued += len(data)
            if stream.queued > WINDOW:
                raise Lost("more input than granted")
        else:
            stream.eof = True
        self.push(stream)

    def push(self, stream):
        """Writes what is queued; the end of file follows the last byte."""
        while stream.queue and stream.fd >= 0:
            try:
                n = os.write(stream.fd, stream.queue[0])
            except BlockingIOError:
                if not stream.polled:
                    stream.polled = True
                    self.watch(stream.fd, select.EPOLLOUT, lambda event: self.push(stream))
                return
            except OSError:                      # nobody reads it any more
                self.close_in(stream)
                break
            self.took(stream, n)
            rest = stream.queue.popleft()[n:]
            if rest:
                stream.queue.appendleft(rest)
        if stream.closed:
            self.took(stream, stream.queued)
            stream.queue.clear()
        elif stream.polled:
            stream.polled = False
            self.unwatch(stream.fd)
        if stream.eof and not stream.queue and stream.fd >= 0:
            self.finish_in(stream)

    def took(self, stream, n):
        stream.queued -= n
        stream.owed += n
        if stream.owed >= WINDOW // 4 or stream.closed:
            self.send(CREDIT | stream.channel, stream.call.number, struct.pack(">I", stream.owed))
            stream.owed = 0

    def finish_in(self, stream):
        if stream.channel == STDIN and stream.call.tty:
            stream.eof = False
            stream.queue.append(END_OF_FILE)
            stream.queued += 1
            stream.owed -= 1
            self.push(stream)
        else:
            self.close_in(stream)

    def close_in(self, stream):
        if stream.polled:
            stream.polled = False
            self.unwatch(stream.fd)
        if stream.fd >= 0:
            os.close(stream.fd)
        stream.fd, stream.closed = -1, True


def pending(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
