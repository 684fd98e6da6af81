// Command mkseccomp derives wisbox's seccomp profile from the default one that
// comes with Podman (containers-common), and prints it.
//
//	go run ./podman/internal/mkseccomp /usr/share/containers/seccomp.json >podman/seccomp.json
//
// Podman's default lets a process without any capability make a user namespace,
// and so reach the kernel code behind mount, netfilter and friends. The profile
// made here allows only what ordinary programs need: no namespaces, no mounts,
// no keyrings, bpf, perf, io_uring or tracing, only local, INET and route netlink
// sockets, and one ABI, since a filter for the 64-bit number of a call doesn't apply to its number in
// another ABI. It is made once and
// embedded, so that it is the same on every host; see seccomp.NOTICE for the
// licence of the input.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	eperm  = 1
	enosys = 38

	low32 = 0xFFFFFFFF // of an argument that the kernel takes as an int: it drops the rest unseen

	allow = "SCMP_ACT_ALLOW"
	deny  = "SCMP_ACT_ERRNO"

	// cloneNew is CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET.
	cloneNew = 0x7E020000
	fileType = 0o170000 // S_IFMT

	mapHugeTLB, memfdHugeTLB, shmHugeTLB = 0x40000, 4, 0o4000
)

// arches lists the architectures; each allows only its native ABI.
var arches = []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"}

// denied lists calls that are refused even if the input allows them.
var denied = strings.Fields(`
	unshare setns mount umount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr
	mount_setattr chroot keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter
	io_uring_register ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd open_by_handle_at
	name_to_handle_at init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct
	quotactl quotactl_fd syslog settimeofday clock_settime clock_settime64 clock_adjtime clock_adjtime64 adjtimex stime
	iopl ioperm lookup_dcookie fanotify_init vhangup sethostname setdomainname nfsservctl vmsplice memfd_secret uselib
	ustat sysfs _sysctl create_module get_kernel_syms query_module move_pages migrate_pages mbind set_mempolicy
	set_mempolicy_home_node lsm_set_self_attr statmount listmount fanotify_mark modify_ldt vm86 vm86old
	socketcall ipc syscall`)

// missing lists calls that fail with ENOSYS, so that programs fall back to others.
var missing = strings.Fields(`
	clone3 io_setup io_submit io_getevents io_pgetevents io_pgetevents_time64 io_cancel io_destroy`)

// filtered lists calls that are allowed with some arguments only, by the rules of added.
var filtered = strings.Fields(`
	clone socket socketpair personality mknod mknodat fcntl fcntl64 ioctl shmctl shmget mmap mmap2 memfd_create`)

// commands are those of fcntl that are allowed: all below 64, and of the Linux-specific ones (from
// F_LINUX_SPECIFIC_BASE) all but leases, delegations and notifications.
var commands = []uint64{
	1024 + 1,                     // F_GETLEASE
	1024 + 3, 1024 + 4, 1024 + 6, // F_DUPFD_QUERY, F_CREATED_QUERY, F_DUPFD_CLOEXEC
	1024 + 7, 1024 + 8, // the size of a pipe
	1024 + 9, 1024 + 10, // seals
	1024 + 11, 1024 + 12, 1024 + 13, 1024 + 14, // hints
}

const oldCommands = low32 &^ 63

// ttyDoors are ioctls that inject terminal input, reach the console or load a line discipline: TIOCSTI, TIOCLINUX,
// TIOCCONS, TIOCSETD.
var ttyDoors = []uint64{0x5412, 0x541C, 0x541D, 0x5423}

type profile struct {
	DefaultAction   string `json:"defaultAction"`
	DefaultErrnoRet int    `json:"defaultErrnoRet"`
	DefaultErrno    string `json:"defaultErrno"`
	ArchMap         []arch `json:"archMap"`
	Syscalls        []rule `json:"syscalls"`
}

type arch struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

type rule struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	Args     []arg    `json:"args"`
	Comment  string   `json:"comment,omitempty"`
	Includes *scope   `json:"includes,omitempty"`
	Excludes *scope   `json:"excludes,omitempty"`
	ErrnoRet *int     `json:"errnoRet,omitempty"`
	Errno    string   `json:"errno,omitempty"`
}

// scope is the set of architectures or capabilities to which a rule applies.
type scope struct {
	Caps      []string `json:"caps,omitempty"`
	Arches    []string `json:"arches,omitempty"`
	MinKernel string   `json:"minKernel,omitempty"`
}

type arg struct {
	Index    int    `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

func main() {
	path := "/usr/share/containers/seccomp.json"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mkseccomp:", err)
		os.Exit(1)
	}
}

func run(path string, w io.Writer) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p profile
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	harden(&p)
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(p)
}

// harden rewrites the rules of p.
func harden(p *profile) {
	p.Syscalls = append(kept(p.Syscalls), added()...)
	p.DefaultAction, p.DefaultErrnoRet, p.DefaultErrno = deny, eperm, "EPERM"
	p.ArchMap = nil
	for _, a := range arches {
		p.ArchMap = append(p.ArchMap, arch{a, []string{}})
	}
}

// kept returns the input's rules except those that we decide ourselves and those that need a capability: no program
// ever has one.
func kept(rules []rule) []rule {
	var out []rule
	for _, r := range rules {
		if r.Includes != nil && len(r.Includes.Caps) > 0 {
			continue
		}
		r.Names = slices.DeleteFunc(r.Names, func(n string) bool {
			return slices.Contains(denied, n) || slices.Contains(missing, n) || slices.Contains(filtered, n)
		})
		if len(r.Names) > 0 {
			out = append(out, r)
		}
	}
	return out
}

func added() []rule {
	out := []rule{
		refuse(eperm, denied...),
		// clone3 hides its flags behind a pointer, and every libc falls back to clone; the kernel counts io_setup's
		// contexts per machine
		refuse(enosys, missing...),
		permit("clone", masked(0, cloneNew, 0)),
		permit("socketpair", equal(0, unix)),
		// all of the machine shares one pool of huge pages
		permit("mmap", masked(3, mapHugeTLB, 0)),
		permit("memfd_create", masked(1, memfdHugeTLB, 0)),
		permit("shmget", masked(2, shmHugeTLB, 0)),
	}
	out = append(out, sockets()...)
	for _, persona := range []uint64{0, low32} { // PER_LINUX, and the query
		out = append(out, permit("personality", equal(0, persona)))
	}
	// mkfifo(3) is mknod: FIFOs, sockets and regular files, no devices
	for _, kind := range []uint64{0o010000, 0o140000, 0o100000, 0} {
		out = append(out, permit("mknod", masked(1, fileType, kind)), permit("mknodat", masked(2, fileType, kind)))
	}
	out = append(out, permit("fcntl", masked(1, oldCommands, 0)))
	for _, c := range commands {
		out = append(out, permit("fcntl", equal(1, c)))
	}
	// not SHM_LOCK: the kernel counts locked memory per user
	for _, c := range []uint64{0, 1, 2, 3, 13, 14, 15} { // IPC_RMID, SET, STAT, INFO, SHM_STAT, INFO, STAT_ANY
		out = append(out, permit("shmctl", equal(1, c)))
	}
	return append(out, permitBut("ioctl", 1, ttyDoors...)...)
}

const (
	unix, inet, inet6, netlink = 1, 2, 10, 16

	tcp, udp = 6, 17
)

// sockets allows no other protocols: the kernel would load the module of one for an INET socket.
func sockets() []rule {
	out := []rule{permit("socket", equal(0, unix)), permit("socket", equal(0, netlink), equal(2, 0))} // NETLINK_ROUTE
	for _, family := range []uint64{inet, inet6} {
		for _, protocol := range []uint64{0, tcp, udp} {
			out = append(out, permit("socket", equal(0, family), equal(2, protocol)))
		}
	}
	return out
}

func refuse(errno int, names ...string) rule {
	return rule{Names: names, Action: deny, ErrnoRet: &errno, Args: []arg{}}
}

func permit(name string, args ...arg) rule {
	return rule{Names: []string{name}, Action: allow, Args: args}
}

// permitBut permits all values of an int except the forbidden ones. Filters have no "else", so one rule covers the
// values that share the higher bits with a forbidden one and differ in the next.
func permitBut(name string, index int, forbidden ...uint64) []rule {
	var out []rule
	seen := map[[2]uint64]bool{}
	for _, f := range forbidden {
		for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
			mask := low32 &^ (bit - 1)
			block := [2]uint64{mask, f&mask ^ bit}
			within := func(v uint64) bool { return v&mask == block[1] }
			if seen[block] || slices.ContainsFunc(forbidden, within) {
				continue
			}
			seen[block] = true
			out = append(out, permit(name, masked(index, mask, block[1])))
		}
	}
	return out
}

// equal compares the bits that the kernel takes: fcntl(fd, 1<<32|F_SETLEASE) is a lease.
func equal(index int, value uint64) arg { return masked(index, low32, value) }

func masked(index int, mask, value uint64) arg {
	return arg{Index: index, Value: mask, ValueTwo: value, Op: "SCMP_CMP_MASKED_EQ"}
}
