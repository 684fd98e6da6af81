"""The processes ready to run a call, and what is left of those that died."""
import _signal
import os
import select
import time
from _collections import deque

from . import launch, python
from .kernel import ROOT, children, close_all, hear, kill, kill_trees, memfd, socket_pair, told
from .wire import REPORT, STARTED

SLOTS = 100                  # programs at once
IDLE = 5.0                   # seconds after which spare slots go
START = 3.0                  # seconds a call waits for a process to be had
PATIENT = 100                # rounds of a sweep a millisecond apart; what is left then is killed


class Slot:
    """A monitor that is ready for a call, or sees one to its end."""

    def __init__(self, pool, sock):
        self.pool, self.sock, self.pid, self.fds, self.call, self.since = pool, sock, 0, (), None, 0.0
        self.born = False                        # it said once that it is ready
        self.doomed = False                      # it was signalled: a late signal must not meet its next call


class Pool:
    """The slots of one kind: of plain programs, or of one template."""

    def __init__(self, spare, name="", source=None):
        self.spare, self.name, self.source = spare, name, source
        self.ready, self.waiting = deque(), deque()
        self.size, self.births = 0, 0            # slots in all, and those not yet ready
        self.control, self.loaded = None, False


class Slots:
    """The part of the agent that has processes. It needs what the agent has."""

    def __init__(self, once):
        self.once = once
        self.pools, self.slots = {"": Pool(1 if once else 2)}, set()
        self.own = {}                            # our children that are not programs: the slot, None of a template
        self.leaving = {}                        # of them those that are to end: the call that waits for it
        self.fates, self.rounds, self.sweeping = {}, 0, False

    def fill(self, pool):
        """Has as many processes ready as are waited for, and the spare ones."""
        while not self.done and len(self.slots) < SLOTS and self.wants(pool):
            if pool.source is not None and not self.has_template(pool):
                return
            mine, its = socket_pair()
            try:
                pid = self.give_birth(pool, its)
            except OSError:
                mine.close()
                self.after(0.05, lambda: pool.waiting and self.fill(pool))
                return
            finally:
                its.close()
            mine.setblocking(False)
            self.add_slot(Slot(pool, mine), pid)

    def wants(self, pool):
        coming = len(pool.ready) + pool.births
        return coming < len(pool.waiting) or pool.size < pool.spare or not coming and not self.once

    def add_slot(self, slot, pid):
        if pid:
            slot.pid, self.own[pid] = pid, slot
        slot.pool.births += 1
        slot.pool.size += 1
        self.slots.add(slot)
        self.watch(slot.sock.fileno(), select.EPOLLIN, lambda event: self.heard(slot))

    def give_birth(self, pool, sock):
        """Gives the pid, 0 where only the process itself can tell."""
        if pool.source is not None:
            if not told(pool.control, b"N", [sock.fileno()]):
                raise OSError
            return 0
        return self.fork(launch.launcher, sock)

    def fork(self, child, *args):
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            child(args[0], parent, *args[1:])
        self.own[pid] = None
        return pid

    def has_template(self, pool):
        """Starts the pool's template; true once it has loaded its source."""
        if pool.control is None:
            mine, its = socket_pair()
            try:
                self.fork(python.template, its, pool.name, pool.source)
            except OSError:
                mine.close()
                self.after(0.05, lambda: self.fill(pool))
                return False
            finally:
                its.close()
            pool.control = mine
            self.watch(mine.fileno(), select.EPOLLIN, lambda event: self.heard_template(pool))
        return pool.loaded

    def heard_template(self, pool):
        message = pool.control.recv(4096)
        if message == b"L":
            pool.loaded = True
            self.fill(pool)
            return
        self.unwatch(pool.control.fileno())
        pool.control.close()
        pool.control, pool.loaded = None, False
        error = {"kind": "source", "message": message[1:].decode("utf-8", "replace") or "the template died"}
        while pool.waiting:
            call = pool.waiting.popleft()
            call.error = error
            self.finish(call)

    def heard(self, slot):
        """One message of a monitor or of its program; false when there is none."""
        try:
            data, fds = hear(slot.sock, 4096)
        except BlockingIOError:
            return False
        except OSError:
            data, fds = b"", ()
        kind, call = data[:1], slot.call
        if kind == b"X":
            self.has_ended(slot, REPORT.unpack(data[1:]), fds)
        elif kind == b"R":
            slot.pid = int(data[1:])
            self.own[slot.pid] = slot
            self.is_ready(slot, fds)
        elif kind == b"":
            self.lose(slot)
        elif call is None:
            close_all(fds)                       # of a program that is not a call yet: its end follows
        elif kind == b"S":
            self.send(STARTED, call.number)
        elif kind == b"T":
            self.terminal(call, fds[0])
        elif kind == b"C":
            self.control(call, fds[0], fds[1])
        elif kind == b"P":
            call.reason = call.reason or "pids_limit"
        elif kind == b"E":
            why, _, text = data[1:].decode("utf-8", "replace").partition("\0")
            call.error = {"kind": why, "message": text}
        return True

    def is_ready(self, slot, fds):
        pool = slot.pool
        if not slot.born:
            pool.births -= 1
            slot.born = True
        slot.fds, slot.since = fds, time.monotonic()
        if pool.waiting:
            call = pool.waiting.popleft()
            self.request(slot, call.request)
            self.dispatch(call, slot)
        else:
            pool.ready.append(slot)
            if len(pool.ready) > pool.spare:
                self.after(IDLE, lambda: self.retire(pool))

    def has_ended(self, slot, report, fds):
        """fds are the pipes of the next call, from a launcher."""
        call, slot.call = slot.call, None
        if call:
            call.report = report
            self.ended(call)
            self.flush()
        else:
            self.drop_ready(slot)
        if slot.doomed:
            close_all(fds)
            self.discard(slot)
        elif fds:
            self.is_ready(slot, fds)

    def retire(self, pool):
        if len(pool.ready) > pool.spare and time.monotonic() - pool.ready[0].since >= IDLE:
            self.discard(pool.ready.popleft())

    def signal(self, slot, number):
        """Only what we have not reaped still has its number."""
        if slot.pid in self.own:
            kill(slot.pid, number)

    def discard(self, slot):
        """Ends a slot that runs nothing."""
        self.signal(slot, _signal.SIGTERM)
        self.lose(slot)

    def give_up(self, slot):
        """Kills a monitor that doesn't end its tree. Its socket tells nothing: a
        child that a program stopped on its way to exec has it open as well."""
        self.signal(slot, _signal.SIGKILL)
        self.leaving.setdefault(slot.pid, None)
        self.start_sweep()

    def drop_ready(self, slot):
        if slot in slot.pool.ready:
            slot.pool.ready.remove(slot)
        close_all(slot.fds)
        slot.fds = ()

    def lose(self, slot):
        """A monitor is gone, or told to go. What a dead one leaves comes to us; its
        call ends when that is gone."""
        self.drop_ready(slot)
        self.unwatch(slot.sock.fileno())
        slot.sock.close()
        self.slots.discard(slot)
        slot.pool.size -= 1
        if not slot.born:
            slot.pool.births -= 1
        if slot.pid:
            self.leaving[slot.pid], slot.call = slot.call, None
        self.start_sweep()
        self.after(0.05, lambda: self.fill(slot.pool))

    def start_sweep(self):
        if not self.sweeping:
            self.sweeping = True
            self.after(0.001, self.sweep)

    def sweep(self):
        """Reaps our dead children and kills programs that lost their monitor, round
        by round, until neither are left; then the calls of those monitors have ended."""
        self.rounds += 1
        self.reap()
        orphans = [p for p in children(os.getpid()) if self.is_program(p)]
        kill_trees(orphans, self.rounds)
        alive = [pid for pid in self.leaving if pid in self.own]
        if self.rounds == PATIENT:
            for pid in alive:
                kill(pid, _signal.SIGKILL)
        self.sweeping = not self.done and bool(orphans or alive or self.rounds < 3)
        if self.sweeping:
            self.after(0.001 if self.rounds < PATIENT else 0.02, self.sweep)
            return
        self.rounds = 0
        leaving, self.leaving = self.leaving, {}
        for pid, call in leaving.items():
            if call:
                self.bury(call, self.fates.get(pid, 0))
        self.fates.clear()

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.fates[pid] = status
            self.has_died(self.own.pop(pid, None))

    def has_died(self, slot):
        """Of a monitor that is reaped the last words count, and no end of file is waited for."""
        while slot in self.slots and self.heard(slot):
            pass
        if slot in self.slots:
            self.lose(slot)

    def bury(self, call, status):
        """A monitor that was killed at the start of its program was killed as that."""
        if os.WIFSIGNALED(status) and not call.reason:
            call.report = (status, 0.0, 0.0, 0, True)
        else:
            call.reason = call.reason or "sandbox_lost"
        self.ended(call)

    def is_program(self, pid):
        """Nothing of ours but a program is ever anything else than uid 0, or our child by name."""
        if pid in self.own:
            return False
        if not ROOT:
            return not any(pool.births for pool in self.pools.values())
        try:
            with open("/proc/%d/status" % pid, "rb") as f:
                return int(f.read().partition(b"\nUid:")[2].split(None, 1)[0]) != 0
        except (OSError, ValueError, IndexError):
            return False

    def dispatch(self, call, slot):
        """Joins a call to the slot that has its request."""
        slot.call, call.slot = call, slot
        call.began, call.request = time.monotonic_ns(), None
        call.shared = any(other.slot for other in self.calls.values() if other is not call)
        if call.shared:
            for other in self.calls.values():
                other.shared = True
            call.before = self.events.read()
        else:
            call.before = self.events.last
        fds, slot.fds = slot.fds, ()
        self.connect(call, fds)
        if call.timeout:
            self.deadlines[call.number] = time.monotonic() + call.timeout
        self.fill(slot.pool)

    def request(self, slot, request):
        if len(request) <= launch.INLINE:
            return told(slot.sock, request)
        fd = memfd(request)
        told(slot.sock, b"M", [fd])
        os.close(fd)

    def no_process(self, call, pool):
        if call in pool.waiting and pool.control and not pool.loaded:
            self.after(START, lambda: self.no_process(call, pool))
        elif call in pool.waiting:
            pool.waiting.remove(call)
            call.reason = "pids_limit"
            self.finish(call)

    def shut(self):
        """Ends every program: each monitor kills its tree and goes; one that
        doesn't is killed, and what it leaves after it."""
        self.done = True
        for slot in self.slots:
            slot.sock.close()
        begin = time.monotonic()
        for number, patience in ((_signal.SIGTERM, 0.3), (_signal.SIGKILL, 1.7)):
            for pid in self.own:
                kill(pid, number)
            while time.monotonic() < begin + patience:
                self.sweep()
                if not children(os.getpid()):
                    return
                time.sleep(0.002)
