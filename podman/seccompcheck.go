package podman

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
)

// profile is a seccomp profile in the format of container tools.
type profile struct {
	DefaultAction string        `json:"defaultAction"`
	Architectures []string      `json:"architectures"`
	ArchMap       []profileArch `json:"archMap"`
	Syscalls      []profileRule `json:"syscalls"`
}

// profileArch holds a processor's ABIs: its native one, and others that it can run.
type profileArch struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

type profileRule struct {
	Names    []string    `json:"names"`
	Name     string      `json:"name"` // in older profiles
	Action   string      `json:"action"`
	Args     []condition `json:"args"`
	Includes struct {
		Caps []string `json:"caps"`
	} `json:"includes"`
	Excludes struct {
		Caps []string `json:"caps"`
	} `json:"excludes"`
}

// condition is a rule's condition on an argument of a system call.
type condition struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

var (
	denies = []string{"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"}
	allows = []string{"SCMP_ACT_ALLOW", "SCMP_ACT_LOG", "SCMP_ACT_NOTIFY", "SCMP_ACT_TRACE"}
	// needed lists the calls without which neither the agent nor any program can start.
	needed = []string{"capset", "clone", "close", "execve", "exit_group", "mmap", "prctl", "read", "setresuid", "socketpair", "wait4", "write"}
)

// CompareSeccomp checks a seccomp profile in JSON for use in place of wisbox's own. It returns the system calls that
// the profile allows and wisbox's own doesn't, or only with certain arguments, and the ABIs besides the processor's
// own, e.g. SCMP_ARCH_X86. The error wraps sandbox.ErrInvalid if the profile allows calls that it doesn't name, or if
// no program could run with it.
func CompareSeccomp(data []byte) (more []string, err error) {
	given, err := parseProfile(data)
	if err != nil {
		return nil, err
	}
	own, err := parseProfile(seccompProfile)
	if err != nil {
		return nil, err
	}
	theirs, ours := given.allowed(), own.allowed()
	for _, name := range needed {
		if _, ok := theirs[name]; !ok {
			return nil, fail(sandbox.ErrInvalid, nil, "the seccomp profile forbids %s, without which no program can run; allow it", name)
		}
	}
	for name, how := range theirs {
		if !how.within(ours[name]) {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	return append(otherABIs(given), more...), nil
}

// otherABIs returns the ABIs that p lets programs use besides the processor's own: their calls have other numbers and
// arguments, and some combine several calls into one.
func otherABIs(p profile) []string {
	out := slices.Clone(p.Architectures)
	if native, ok := nativeArch[runtime.GOARCH]; ok {
		out = slices.DeleteFunc(out, func(a string) bool { return a == native })
	}
	for _, a := range p.ArchMap {
		if native, ok := nativeArch[runtime.GOARCH]; !ok || a.Architecture == native {
			out = append(out, a.SubArchitectures...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var nativeArch = map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}

func parseProfile(data []byte) (p profile, err error) {
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fail(sandbox.ErrInvalid, err, "the seccomp profile is not valid JSON: %s", jsonWords(err))
	}
	switch {
	case slices.Contains(allows, p.DefaultAction):
		return p, fail(sandbox.ErrInvalid, nil, "the seccomp profile allows every call that it doesn't name (defaultAction is %s); make it SCMP_ACT_ERRNO and name what is allowed", p.DefaultAction)
	case !slices.Contains(denies, p.DefaultAction):
		return p, fail(sandbox.ErrInvalid, nil, "the seccomp profile's defaultAction is %q; make it SCMP_ACT_ERRNO", p.DefaultAction)
	}
	for i, r := range p.Syscalls {
		if !slices.Contains(allows, r.Action) && !slices.Contains(denies, r.Action) {
			return p, fail(sandbox.ErrInvalid, nil, "the seccomp profile's syscalls[%d].action is %q, which is not an action", i, r.Action)
		}
		if r.Name != "" {
			p.Syscalls[i].Names = append(slices.Clip(r.Names), r.Name)
		}
		if len(p.Syscalls[i].Names) == 0 {
			return p, fail(sandbox.ErrInvalid, nil, "the seccomp profile's syscalls[%d] has no names", i)
		}
	}
	return p, nil
}

// jsonWords describes the position of a JSON error, without its content.
func jsonWords(err error) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("there is an error at byte %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s has the wrong type", e.Field)
	}
	return "it is cut off"
}

// permission lists alternative conditions on the arguments of an allowed call; an empty alternative always holds.
type permission [][]condition

// allowed returns the calls that processes of a sandbox may make, by name. Rules that forbid calls take nothing back:
// runtimes drop the rules that repeat the default.
func (p profile) allowed() map[string]permission {
	out := map[string]permission{}
	for _, r := range p.Syscalls {
		if !slices.Contains(allows, r.Action) || !r.applies() {
			continue
		}
		for _, name := range r.Names {
			out[name] = append(out[name], r.Args)
		}
	}
	return out
}

// applies reports whether a rule holds in our containers, which never have the capabilities that some rules depend on.
func (r profileRule) applies() bool {
	have := func(name string) bool { return slices.Contains(agentCaps, name) }
	lacks := func(name string) bool { return !have(name) }
	return !slices.ContainsFunc(r.Includes.Caps, lacks) && !slices.ContainsFunc(r.Excludes.Caps, have)
}

// within reports whether each alternative of p is also allowed by other.
func (p permission) within(other permission) bool {
	for _, mine := range p {
		covered := func(theirs []condition) bool { return implied(mine, theirs) }
		if !slices.ContainsFunc(other, covered) {
			return false
		}
	}
	return true
}

// implied reports whether these conditions imply those. Runtimes treat several conditions on one argument as
// alternatives, so two on one argument imply nothing.
func implied(these, those []condition) bool {
	once := map[uint]bool{}
	for _, c := range these {
		if once[c.Index] {
			return slices.Equal(these, those) || len(those) == 0
		}
		once[c.Index] = true
	}
	for _, that := range those {
		if !slices.ContainsFunc(these, that.follows) {
			return false
		}
	}
	return true
}

// follows reports whether c holds wherever other does.
func (c condition) follows(other condition) bool {
	if c == other {
		return true
	}
	mask, value, ok := c.bits()
	otherMask, otherValue, known := other.bits()
	return ok && known && c.Index == other.Index && mask&^otherMask == 0 && otherValue&mask == value
}

// bits returns the value that an argument must have in the bits of mask.
func (c condition) bits() (mask, value uint64, ok bool) {
	switch c.Op {
	case "SCMP_CMP_EQ":
		return math.MaxUint64, c.Value, true
	case "SCMP_CMP_MASKED_EQ":
		return c.Value, c.ValueTwo, true
	}
	return 0, 0, false
}

// someOf lists the first few names.
func someOf(names []string) string {
	const few = 8
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
