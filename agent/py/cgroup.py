"""What the sandbox's control groups say, on version 1 and 2, and the hello."""
import os
import resource
import sys

from .wire import VERSION


class Events:
    """The counters of out-of-memory kills and refused forks."""
    FILES = (("/sys/fs/cgroup/memory.events", b"oom_kill"), ("/sys/fs/cgroup/pids.events", b"max"),
             ("/sys/fs/cgroup/memory/memory.oom_control", b"oom_kill"), ("/sys/fs/cgroup/pids/pids.events", b"max"))

    def __init__(self):
        self.files = []
        for i, (path, key) in enumerate(self.FILES):
            try:
                self.files.append((os.open(path, os.O_RDONLY), key, i % 2))
            except OSError:
                pass
        self.last = self.read()

    def read(self):
        counts = [0, 0]
        for fd, key, i in self.files:
            words = os.pread(fd, 4096, 0).split()
            if key in words:
                counts[i] += int(words[words.index(key) + 1])
        self.last = counts
        return counts


def limits():
    names = {"memory": ("memory.max", "memory/memory.limit_in_bytes"),
             "swap": ("memory.swap.max", "memory/memory.memsw.limit_in_bytes"),
             "pids": ("pids.max", "pids/pids.max"), "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us"),
             "cpu_period": ("", "cpu/cpu.cfs_period_us")}
    found = {}
    for name, paths in names.items():
        for path in paths:
            try:
                with open("/sys/fs/cgroup/" + path) as f:
                    found[name] = f.read().strip()
            except OSError:
                pass
    return found


def hello(gaps, direct):
    with open("/proc/self/status") as f:
        status = dict(line.split(":\t", 1) for line in f if ":\t" in line)
    return {"version": VERSION, "python": "%d.%d.%d" % sys.version_info[:3], "uid": os.getuid(), "pid": os.getpid(),
            "caps": status.get("CapPrm", "").strip(), "bounding": status.get("CapBnd", "").strip(),
            "seccomp": status.get("Seccomp", "").strip() == "2",
            "cgroup": 2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1,
            "limits": limits(), "gaps": gaps, "socket": direct,
            "rlimits": {n[7:].lower(): resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")}}
