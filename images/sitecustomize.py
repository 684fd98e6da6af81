"""Gives the relocatable CPython, built for an older C library, what it lacks there.

Installed only where os has no memfd_create; loaded at each start that imports site.
"""

import os


def memfd_create(name, flags=1):
    """As os.memfd_create of other builds: an anonymous file in memory."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.memfd_create(os.fsencode(name), ctypes.c_uint(flags))
    if fd < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return fd


os.memfd_create = memfd_create
os.MFD_CLOEXEC = 1
os.MFD_ALLOW_SEALING = 2
