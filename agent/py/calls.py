"""One call: what was asked, what came of it, and the verdict."""
import _signal
import os

from .streams import In
from .wire import CTL_IN, REQUEST, STDIN, WITH_CONTROL, WITH_CTL_IN, WITH_STDIN, WITH_TTY, to_json

NOTHING = (0, 0.0, 0.0, 0, False)
EXIT_JSON = ('{"status":%s,"code":%d,"signal":%d,"ns":%d,"out":[%d,%d],"user":%f,"system":%f,"rss":%d,'
             '"shared":%s,"notices":%s,"error":%s}')


def key_of(payload):
    """The key of the Python source that a request names, "" for a plain program."""
    return payload[REQUEST.size - 32:REQUEST.size].rstrip(b"\0").decode()


class Call:
    def __init__(self, number, payload):
        self.number, self.request = number, payload
        flags, self.timeout, _, _, *bounds, _, _ = REQUEST.unpack_from(payload)
        self.bounds = bounds                     # of stdout, then stderr: bytes to forward, bytes of tail
        self.key = key_of(payload)
        self.tty, self.control = flags & WITH_TTY, flags & WITH_CONTROL
        self.slot, self.outs, self.ins, self.totals, self.tails = None, {}, {}, [0] * 5, []
        self.began, self.lasted, self.report, self.reason, self.error = 0, 0, None, None, None
        self.shared, self.before = False, None
        if flags & WITH_STDIN:
            self.ins[STDIN] = In(self, STDIN)
        if flags & WITH_CTL_IN:
            self.ins[CTL_IN] = In(self, CTL_IN)

    def verdict(self, events):
        """How the call ended, as an exit frame says it."""
        status, user, system, rss, killed = self.report or NOTHING
        result = {"status": "exited", "signal": 0, "code": 0, "notices": []}
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            result.update(status="signaled", signal=number, code=128 + number)
        else:
            result["code"] = os.WEXITSTATUS(status)
        if self.reason:
            code = {"timed_out": 124, "sandbox_lost": -1, "pids_limit": 126}.get(self.reason, 137)
            result.update(status=self.reason, signal=0, code=code)
        if self.before is not None:
            self.blame(events, result, killed)
        return EXIT_JSON % (to_json(result["status"]), result["code"], result["signal"], self.lasted, self.totals[1], self.totals[2],
                            user, system, rss << 10, "true" if self.shared else "false",
                            to_json(result["notices"]) if result["notices"] else "[]", to_json(self.error) if self.error else "null")

    def blame(self, events, result, killed):
        oom, pids = (now - then for now, then in zip(events.read(), self.before))
        failed = result["code"] != 0
        if oom:
            killed = killed or result["code"] == 137 or failed and not self.shared
            limit_hit(result, "oom_killed", failed and killed, "the memory limit was reached and %d processes were killed for it" % oom)
        if pids:
            limit_hit(result, "pids_limit", failed, "the process limit was reached %d times" % pids)
        if _signal.SIGXFSZ in (result["signal"], result["code"] - 128):
            limit_hit(result, "disk_limit", True, "a file reached the size limit")


def limit_hit(result, status, decides, evidence):
    result["notices"].append(evidence)
    if decides and result["status"] in ("exited", "signaled"):
        result["status"] = status
