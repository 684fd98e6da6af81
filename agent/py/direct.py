"""A socket between the agent and its host, in place of the stream through which
the agent was started: each relay on that way has to be woken up for each frame.

The agent makes both ends and says so in its hello; a host with the right to do
it takes one out of this process (pidfd_getfd). It has no name, in no file system
and no network, so nothing can connect to it; and it is closed in all children.
"""
import _socket
import os


class Direct:
    def __init__(self):
        self.ours, self.hosts = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM, 0)

    def told(self):
        """What a host must know to take its end, and to know it for the right one."""
        return [self.hosts.fileno(), os.fstat(self.hosts.fileno()).st_ino]

    def move(self):
        """Puts our end in the place of the stream. The old one stays open: what
        relays it may take its end for that of the program."""
        for fd in (0, 1):
            os.dup(fd)
            os.dup2(self.ours.fileno(), fd)
            os.set_blocking(fd, False)
        self.ours.close()
        self.hosts.close()
