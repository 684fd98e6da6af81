"""Tries what the seccomp profile forbids, through each ABI that this processor's
kernel may offer. Each call is made in a child, for a filter may end it. Prints
"ABI CALL RESULT" each: "refused", or what it got.

Where arguments are given no call does harm even where it is allowed."""
import ctypes, errno, mmap, os, platform, sys

NATIVE = platform.machine()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
FORBIDDEN = (errno.EPERM, errno.ENOSYS, errno.EACCES)
HIGH = 1 << 32               # what the kernel drops of an int
CLONE_NEWUSER, SIGCHLD = 0x10000000, 17

# name: numbers on x86-64, i386 and aarch64, None if there is no such call
NUMBERS = {
    "socket": (41, 359, 198), "socketpair": (53, 360, 199), "socketcall": (None, 102, None), "ipc": (None, 117, None),
    "fcntl": (72, 55, 25), "fcntl64": (None, 221, None), "clone": (56, 120, 220), "clone3": (435, 435, 435),
    "personality": (135, 136, 92), "ioctl": (16, 54, 29), "io_setup": (206, 245, 0), "io_submit": (209, 248, 2),
    "io_uring_setup": (425, 425, 425), "unshare": (272, 310, 97), "setns": (308, 346, 268), "ptrace": (101, 26, 117),
    "bpf": (321, 357, 280), "keyctl": (250, 288, 219), "add_key": (248, 286, 217), "request_key": (249, 287, 218),
    "userfaultfd": (323, 374, 282), "perf_event_open": (298, 336, 241), "open_by_handle_at": (304, 342, 265),
    "name_to_handle_at": (303, 341, 264), "process_vm_readv": (310, 347, 270), "process_vm_writev": (311, 348, 271),
    "kcmp": (312, 349, 272), "pidfd_getfd": (438, 438, 438), "memfd_secret": (447, None, 447), "modify_ldt": (154, 123, None),
    "vm86": (None, 166, None), "vm86old": (None, 113, None), "quotactl": (179, 131, 60), "quotactl_fd": (443, 443, 443),
    "fanotify_init": (300, 338, 262), "fanotify_mark": (301, 339, 263), "lookup_dcookie": (212, 253, 18), "syslog": (103, 103, 116),
    "acct": (163, 51, 89), "swapon": (167, 87, 224), "swapoff": (168, 115, 225), "mount": (165, 21, 40), "umount2": (166, 52, 39),
    "open_tree": (428, 428, 428), "move_mount": (429, 429, 429), "fsopen": (430, 430, 430), "fsmount": (432, 432, 432),
    "mount_setattr": (442, 442, 442), "pivot_root": (155, 217, 41), "chroot": (161, 61, 51), "vmsplice": (278, 316, 75),
    "init_module": (175, 128, 105), "finit_module": (313, 350, 273), "kexec_load": (246, 283, 104), "reboot": (169, 88, 142),
    "iopl": (172, 110, None), "ioperm": (173, 101, None), "mbind": (237, 274, 235), "set_mempolicy": (238, 276, 237),
    "move_pages": (279, 317, 239), "migrate_pages": (256, 294, 238), "shmctl": (31, 396, 195), "shmget": (29, 395, 194),
    "mmap": (9, None, 222), "memfd_create": (319, 356, 279), "mknodat": (259, 297, 33), "settimeofday": (164, 79, 170),
    "statmount": (457, 457, 457), "listmount": (458, 458, 458), "vhangup": (153, 111, 58), "getpid": (39, 20, 172),
}
TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD = 0x5412, 0x541C, 0x541D, 0x5423


def calls(low):
    """What is tried, with pointers below 4 GiB that point at zeroes."""
    found = [(name, ()) for name in NUMBERS if name not in ("getpid", "socket", "socketpair", "fcntl", "fcntl64", "clone", "personality",
                                                            "ioctl", "shmctl", "shmget", "mmap", "memfd_create", "mknodat", "socketcall", "ipc")]
    for family, kind, protocol in ((40, 1, 0), (38, 5, 0), (17, 3, 0), (30, 1, 0), (29, 3, 1), (15, 3, 2),  # vsock, alg, packet, tipc, can, key
                                   (16, 3, 2), (16, 3, 6), (16, 3, 9), (16, 3, 12), (16, 3, 15), (16, 3, 16), (16, 3, 21),
                                   (2, 1, 132), (2, 1, 262), (10, 1, 132), (2, 2, 136), (2, 2, 115)):
        found.append(("socket", (family, kind, protocol)))
        found.append(("socket", (family | HIGH, kind | HIGH, protocol | HIGH)))
    for family in (16, 30, 38, 40):
        found.append(("socketpair", (family, 1, 0, low)))
        found.append(("socketpair", (family | HIGH, 1, 0, low)))
    for name in ("fcntl", "fcntl64"):
        for command in (1024, 1026, 1040):       # F_SETLEASE, F_NOTIFY, F_SETDELEG
            found.append((name, (0, command, 0)))
            found.append((name, (0, command | HIGH, 0)))
            found.append((name, (0, command | 7 * HIGH, 1)))
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, CLONE_NEWUSER, 0x20000000, 0x40000000):
        found.append(("clone", (flag | SIGCHLD, 0, 0, 0, 0)))
        found.append(("clone", (flag | SIGCHLD | HIGH, 0, 0, 0, 0)))
    for persona in (0x0400000, 8, 0x0040000):    # READ_IMPLIES_EXEC, PER_LINUX32, ADDR_NO_RANDOMIZE
        found.append(("personality", (persona,)))
        found.append(("personality", (persona | HIGH,)))
    for request in (TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD):
        found.append(("ioctl", (0, request, low)))
        found.append(("ioctl", (0, request | HIGH, low)))
    for command in (11, 12):                     # SHM_LOCK, SHM_UNLOCK
        found.append(("shmctl", (0, command, 0)))
        found.append(("shmctl", (0, command | HIGH, 0)))
    found.append(("shmget", (0, 4096, 0o4000 | 0o1600)))
    found.append(("shmget", (0, 4096, 0o4000 | 0o1600 | HIGH)))
    found.append(("mmap", (0, 2 << 20, 3, 0x22 | 0x40000, -1, 0)))
    found.append(("memfd_create", (low, 4)))
    found.append(("memfd_create", (low, 4 | HIGH)))
    found.append(("mknodat", (-100, low, 0o020600, 0x103)))
    found.append(("mknodat", (-100, low, 0o020600 | HIGH | 0o200000, 0x103)))
    for call in range(1, 21):
        found.append(("socketcall", (call, low)))
    for call in (1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24):
        found.append(("ipc", (call, 0, 0, 0, low)))
    return found


def low_page():
    """A page below 4 GiB, where a call of 32 bits finds it; it holds zeroes and code."""
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(8192), 7, 0x22 | (0x40 if NATIVE == "x86_64" else 0), -1, ctypes.c_long(0))
    return at


# eax, ebx, ecx, edx, esi, edi, ebp from seven words at rdi; int 0x80
INT80 = bytes.fromhex("53 55 49 89 f8 41 8b 00 41 8b 58 04 41 8b 48 08 41 8b 50 0c 41 8b 70 10 41 8b 78 14 41 8b 68 18 cd 80 48 98 5d 5b c3")


def native(number, args, page):
    got = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    return -ctypes.get_errno() if got == -1 else got


def x32(number, args, page):
    return native(number | 0x40000000, args, page)


def int80(number, args, page):
    words = (ctypes.c_uint32 * 7)(number, *[a & 0xFFFFFFFF for a in args])
    ctypes.memmove(page + 4096, INT80, len(INT80))
    return ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(page + 4096)(ctypes.addressof(words))


def result(way, number, args, page):
    pid = os.fork()
    if pid == 0:
        got = way(number, args, page)
        os._exit(min(-got, 254) if got < 0 else 255)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return "refused" if os.WTERMSIG(status) in (31, 11) else "signal %d" % os.WTERMSIG(status)  # SIGSYS; a kernel without int 0x80
    code = os.WEXITSTATUS(status)
    return "refused" if code in FORBIDDEN else "ALLOWED" if code == 255 else errno.errorcode.get(code, str(code))


def main():
    page = low_page()
    if NATIVE == "x86_64":
        ways = (("x86-64", native, 0), ("x32", x32, 0), ("i386", int80, 1))
    else:
        ways = ((NATIVE, native, 2),)
    for name, way, column in ways:
        print(name, "getpid", result(way, NUMBERS["getpid"][column], (), page))
        for call, args in calls(page):
            number = NUMBERS[call][column]
            if number is not None:
                print(name, call + "(" + ",".join("%#x" % a for a in args) + ")", result(way, number, args, page))


main()
