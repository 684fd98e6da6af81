// Command mkseccomp derives wisbox's seccomp profile from the default one that
// comes with Podman (containers-common), and prints it.
//
//	go run ./podman/internal/mkseccomp /usr/share/containers/seccomp.json >podman/seccomp.json
//
// Podman's default lets a process without any capability make a user namespace,
// and so reach the kernel code behind mount, netfilter and friends. The profile
// made here allows only what ordinary programs need: no namespaces, no mounts,
// no keyrings, bpf, perf, io_uring or tracing, and only local, INET and route
// netlink sockets. It is made once and embedded, so that it is the same on every
// host; see seccomp.NOTICE for the licence of the input.
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

	allow = "SCMP_ACT_ALLOW"
	deny  = "SCMP_ACT_ERRNO"

	// cloneNew is CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET.
	cloneNew = 0x7E020000
	fileType = 0o170000 // S_IFMT
)

// denied is refused whatever the input says about it.
var denied = strings.Fields(`
	unshare setns mount umount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr
	mount_setattr chroot keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter
	io_uring_register ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd open_by_handle_at
	name_to_handle_at init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct
	quotactl quotactl_fd syslog settimeofday clock_settime clock_settime64 clock_adjtime clock_adjtime64 adjtimex stime
	iopl ioperm lookup_dcookie fanotify_init vhangup sethostname setdomainname nfsservctl vmsplice memfd_secret uselib
	ustat sysfs _sysctl create_module get_kernel_syms query_module move_pages migrate_pages mbind set_mempolicy
	set_mempolicy_home_node lsm_set_self_attr statmount listmount`)

// filtered is allowed for some arguments only: the rules that main adds.
var filtered = []string{"clone", "clone3", "socket", "personality", "mknod", "mknodat"}

type profile struct {
	DefaultAction   string            `json:"defaultAction"`
	DefaultErrnoRet int               `json:"defaultErrnoRet"`
	DefaultErrno    string            `json:"defaultErrno"`
	ArchMap         []json.RawMessage `json:"archMap"`
	Syscalls        []rule            `json:"syscalls"`
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

// scope is where a rule holds.
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
}

// kept are the input's rules without what we decide ourselves, and without
// those that come with a capability: no program ever has one.
func kept(rules []rule) []rule {
	var out []rule
	for _, r := range rules {
		if r.Includes != nil && len(r.Includes.Caps) > 0 {
			continue
		}
		r.Names = slices.DeleteFunc(r.Names, func(n string) bool {
			return slices.Contains(denied, n) || slices.Contains(filtered, n)
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
		// clone without a new namespace; clone3 hides its flags behind a
		// pointer, and every libc falls back to clone when it is missing
		permit("clone", masked(0, cloneNew, 0)),
		refuse(enosys, "clone3"),
	}
	for _, family := range []uint64{1, 2, 10} { // UNIX, INET, INET6
		out = append(out, permit("socket", equal(0, family)))
	}
	out = append(out, permit("socket", equal(0, 16), equal(2, 0))) // NETLINK_ROUTE
	for _, persona := range []uint64{0, 0xFFFFFFFF} {              // plain, and the question
		out = append(out, permit("personality", equal(0, persona)))
	}
	// mkfifo(3) is mknod: FIFOs, sockets and regular files, no devices
	for _, kind := range []uint64{0o010000, 0o140000, 0o100000, 0} {
		out = append(out, permit("mknod", masked(1, fileType, kind)), permit("mknodat", masked(2, fileType, kind)))
	}
	return out
}

func refuse(errno int, names ...string) rule {
	return rule{Names: names, Action: deny, ErrnoRet: &errno, Args: []arg{}}
}

func permit(name string, args ...arg) rule {
	return rule{Names: []string{name}, Action: allow, Args: args}
}

func equal(index int, value uint64) arg {
	return arg{Index: index, Value: value, Op: "SCMP_CMP_EQ"}
}

func masked(index int, mask, value uint64) arg {
	return arg{Index: index, Value: mask, ValueTwo: value, Op: "SCMP_CMP_MASKED_EQ"}
}
