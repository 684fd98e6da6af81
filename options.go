package wisbox

import (
	"io"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	units "github.com/docker/go-units"
	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/podman"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Options configure a Manager. The zero value and nil work.
type Options struct {
	// CacheDir is the state root that holds the sessions. Default:
	// $WISBOX_CACHE, $WEAKINCENTIVES_CACHE, or wisbox in the XDG cache directory.
	CacheDir string
	// Podman says which Podman to use. Default: as [podman.New] finds or starts one.
	Podman podman.Options
	// Backend replaces Podman, in tests above all. The Manager doesn't close it.
	Backend sandbox.Backend
	// AllowedRoots are the host directories that mounts may come from. Default
	// none: a mount needs one.
	AllowedRoots []string
	// Pool keeps started containers ready. Default none.
	Pool PoolOptions
	// Digests are asked for the digest of a session that has none of its own.
	// Default: those that callers set at global scope, kept in the state root.
	Digests digest.Overrides
	// Wasm configures Python in WebAssembly, the sandbox "wasm" of
	// evaluate_python. The zero value works once the module is installed.
	Wasm wasm.Options
	// Holder is the command that holds a kept session for its clients: the
	// session's name is added, and it calls [Manager.Hold] with [HoldReady].
	// Default none: the kept session's work is done in this process, and its
	// kept interpreters and processes end with it. The command line sets
	// `wisbox __hold`.
	Holder []string
	// Logger gets what agents don't see: causes, phases, clean-up. Default: none.
	Logger *slog.Logger
	// Tools returns the embedder's own tools for a session that is being opened; nil
	// adds none. [Session.Call] runs them in this process, and records them as all
	// others. Such a tool changes the workspace through Session.Call, so that there
	// is a step and a record of it too. A name of wisbox's own is taken over.
	Tools func(*Session) []tool.Tool
	// OnEvent is called after every tool call, from the call's goroutine.
	OnEvent func(Event)
	// Meter counts the calls of all sessions. Default none; package metrics has one.
	Meter Meter
	// TracerProvider gets a span for each call, and below it one for each
	// container that is made and each program that runs. Default none. Where a
	// holder does the work its own provider, if it has one, gets those spans, below
	// the client's: the trace goes with the request as W3C Trace Context.
	TracerProvider trace.TracerProvider
}

// Meter takes the measure of a Manager. Its methods may be called from many
// goroutines at once.
type Meter interface {
	// Call is called after every call of every session, whatever has its events.
	Call(Event)
	// Ended is called when a program ended that had outlived its call, as those of
	// [Session.Start] and process_start do, with its [sandbox.Status]. The holder of a
	// session counts its own.
	Ended(verdict string)
}

// Reporter is a Meter that can report what it has counted. A holder with such a
// one answers [Manager.HolderReports].
type Reporter interface {
	Meter
	// Report writes all that was counted, in whatever form its reader knows.
	Report(io.Writer) error
}

// SessionOptions configure a session. The zero value is an ephemeral session
// with the default image and limits.
type SessionOptions struct {
	// Name is the session's ID: ^[a-z0-9][a-z0-9-]{0,62}$. Default: a ULID.
	Name string `json:"-"`
	// Kept sessions outlive their opener and are removed by [Manager.Remove],
	// their TTL or idle time. Others go with their opener, however it ends.
	Kept bool `json:"-"`
	// Image to run. Default: [images.Default].
	Image string `json:"image"`
	// Pull says when Open fetches the image from the registry that its name begins
	// with. Default [PullMissing]. Images below localhost/, wisbox's own among them,
	// those named by an id and those named without a registry are never pulled: to
	// ask for it with PullAlways is invalid. What was pulled stays when Open fails.
	Pull Pull `json:"-"`
	// OnPull gets the progress of the pull, from one goroutine.
	OnPull func(PullProgress) `json:"-"`
	// Limits of processor, memory, processes, disk; defaults in [sandbox.Limits].
	Limits sandbox.Limits `json:"limits"`
	// Env is added for every program: at most 64 entries, names of 80 and
	// values of 512 characters. Nothing of the host's environment is passed on.
	Env map[string]string `json:"env,omitempty"`
	// UserHome has programs find the workspace at /home/user too, which is their HOME
	// then, and themselves as "user" in /etc/passwd, whatever the image has there: what
	// programs expect that were written for other sandboxes.
	UserHome bool `json:"user_home,omitempty"`
	// MaxProcesses is how many that [Session.StartProcess] or process_start began may
	// run at once, default 16. Each takes at least six of Limits.PIDs.
	MaxProcesses int `json:"max_processes,omitempty"`
	// Secrets are files that programs find in /run/secrets, see [Secret]: at most
	// 64, each with a line of 8 bytes at least and 64 KiB at most.
	Secrets map[string]Secret `json:"secrets,omitempty"`
	// Template is the ID, or the name, of what [Session.CreateTemplate] has kept: the
	// session begins with its files and, where they are left out here, its image, variables,
	// profile and isolation. Mounts are copied in behind it. [Session.Reset] empties the
	// workspace; the template's files are the session's first snapshot.
	Template string `json:"template,omitempty"`
	// Mounts are copied into the workspace when the session opens, in order.
	Mounts []hostmount.Mount `json:"mounts,omitempty"`
	// AllowedRoots for these mounts, beside the Manager's. They are kept with the
	// session, whose mounts [Session.Reset] copies again.
	AllowedRoots []string `json:"allowed_roots,omitempty"`
	// OnMount is told how the copying goes.
	OnMount func(hostmount.Progress) `json:"-"`
	// OnMounted is told what the mounts brought, and what they left out and why.
	OnMounted func(*hostmount.Report) `json:"-"`
	// KeepGiven keeps a snapshot of what the mounts brought, which [Session.Diff] and
	// [Session.Apply] compare with. A kept session always does; for another it costs a
	// look at all that was mounted when it opens, and room on the disk.
	KeepGiven bool `json:"keep_given,omitempty"`
	// Paths says which paths the tools take: [vfs.ASCII], the default, or [vfs.Any], with
	// which the names of files and the commands of shell_execute may be Unicode.
	Paths vfs.Grammar `json:"paths,omitempty"`
	// ReadBeforeWrite refuses to change an existing file that wasn't read.
	ReadBeforeWrite bool `json:"read_before_write,omitempty"`
	// AutoSnapshot makes a step before each call that can change the workspace: a
	// snapshot with the call's id, to which [Session.Undo] goes back. Calls then
	// take as long as two looks at the whole workspace more.
	AutoSnapshot bool `json:"auto_snapshot,omitempty"`
	// SnapshotSpace is how many bytes of the host's disk the session's snapshots may
	// take: at the limit the oldest steps and other automatic ones go, and when none is
	// left a snapshot is no_space. Default: twice the disk limit, at least 16 MiB.
	SnapshotSpace int64 `json:"snapshot_space,omitempty"`
	// RollbackOnFailure makes a call that fails (an error, or a result that is
	// marked failed; not a program's exit code) leave the workspace as it was
	// before. It implies AutoSnapshot, and calls that can change the workspace
	// wait for each other. What a program that runs on writes meanwhile is lost.
	RollbackOnFailure bool `json:"rollback_on_failure,omitempty"`
	// OnEvent is called after every call of this session instead of the Manager's.
	OnEvent func(Event) `json:"-"`
	// Fsync puts each snapshot, restore and change of a file tool on disk before it is
	// acknowledged, so that it outlives a crash of the machine too. Default: a
	// crash of processes.
	Fsync bool `json:"fsync,omitempty"`
	// Profile is the names and shapes of the tools that [Session.Call] has, see
	// [ToolProfile]. It is kept with the session. Default "wisbox".
	Profile string `json:"profile,omitempty"`
	// Isolation is how far programs are kept from the host's kernel; default
	// [sandbox.IsolationDefault]. Where the level isn't there the first program is
	// unavailable, and the error says what to install.
	Isolation sandbox.Isolation `json:"isolation,omitempty"`
	// UserNS "auto" gives the session's programs user IDs that no other session has,
	// where Podman is rootful; "shared" those of all sessions of this host user.
	// Default: IDs of its own where that costs nothing, which is where the storage can
	// be mounted with shifted ids. A kept session keeps the IDs that it began with.
	UserNS string `json:"userns,omitempty"`
	// Seccomp is a host file with a seccomp profile to use in place of wisbox's own,
	// absolute. It must deny what it doesn't name. What it allows beyond wisbox's
	// own is told by [Session.Inspect], and refused with Strict. A kept session
	// keeps the path, and reads it for each container. Not with IsolationGVisor.
	Seccomp string `json:"seccomp,omitempty"`
	// Strict refuses to start where the host doesn't enforce every limit.
	Strict bool `json:"strict,omitempty"`
	// MaxTimeout of shell_execute, from 0.1 s to a day, default 120 s.
	MaxTimeout time.Duration `json:"max_timeout,omitempty"`
	// MaxEvalTimeout of evaluate_python, from 0.1 s to a day, default 5 s.
	MaxEvalTimeout time.Duration `json:"max_eval_timeout,omitempty"`
	// MaxCode of evaluate_python in characters, at most 4 Mi, default 2,000.
	MaxCode int `json:"max_code,omitempty"`
	// MaxOutput of evaluate_python is how many characters of stdout and of stderr a result
	// has, from 4,096, the default, to 1 Mi.
	MaxOutput int `json:"max_output,omitempty"`
	// Allow has the rules of what programs may connect to, see package egress/policy:
	// HOST[:PORT,…], *.HOST, tcp:HOST:PORT, private:HOST, host:PORT, public, or a preset
	// as python. Default none, and then there is no network at all. Where a sandbox's
	// network can't be used, no program starts.
	Allow []string `json:"allow,omitempty"`
	// Deny has the rules of what they may not, whatever Allow says.
	Deny []string `json:"deny,omitempty"`
	// Inject adds secrets to requests on their way, as
	// HOST:HEADER=[SCHEME ]SECRET[,methods=GET|HEAD][,path=/v1/][,env=NAME], see
	// policy.Injection. Programs don't get such a secret.
	Inject []string `json:"inject,omitempty"`
	// EgressVia is the URL of a proxy through which all connections to public names go.
	// It is kept with the session, a password in it too.
	EgressVia string `json:"egress_via,omitempty"`
	// EgressOut is how many bytes programs may send to other hosts in all, from 1 MiB to
	// 1 TiB, default 64 MiB: it bounds what a leak can carry.
	EgressOut int64 `json:"egress_out,omitempty"`
	// EgressRecord allows what the rule public does, beside Allow; Deny wins over it. The
	// Recorded of [Session.Egress] are the rules that the session needed, in all. A kept
	// session's are kept with it.
	EgressRecord bool `json:"egress_record,omitempty"`
	// Services are containers beside the session's, as a database, started before its first
	// program and gone with its container. Programs reach them at 127.0.0.1.
	// Not with IsolationGVisor.
	Services []sandbox.Companion `json:"services,omitempty"`
	// Digest of the workspace that a caller has set; default what the files tell.
	Digest *digest.Text `json:"digest,omitempty"`
	// DigestTag chooses among the digests of [Options.Digests]; default
	// [digest.DefaultTag].
	DigestTag string `json:"digest_tag,omitempty"`
	// TTL ends a kept session that long after its creation; 0 never.
	TTL time.Duration `json:"ttl,omitempty"`
	// Idle ends a kept session that long after its last use; 0 never.
	Idle time.Duration `json:"idle,omitempty"`
}

var sessionName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// The values of UserNS.
const (
	usernsAuto   = "auto"
	usernsShared = "shared"
)

// Bounds of Env: those of shell_execute's env.
const (
	maxEnv      = 64
	maxEnvName  = 80
	maxEnvValue = 512
)

// maxProcesses bounds MaxProcesses.
const maxProcesses = 1000

// maxDisk is the largest workspace, in bytes: what an image file may have on the
// usual file systems.
const maxDisk = 8 << 40

// Check reports what is wrong with the options, before anything is made. Nothing of
// the host but the files that they name is looked at.
func (o *SessionOptions) Check() error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	return box.CheckSecrets(inner(opts.Secrets))
}

// withDefaults checks the options and fills what was left out.
func (o *SessionOptions) withDefaults() (SessionOptions, error) {
	var opts SessionOptions
	if o != nil {
		opts = *o
	}
	if opts.Name != "" && !sessionName().MatchString(opts.Name) {
		return opts, tool.Errorf(tool.Invalid, "name %q must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen", opts.Name).In("name")
	}
	if err := checkLimits(opts.Limits); err != nil {
		return opts, err
	}
	if err := checkEnv(opts.Env); err != nil {
		return opts, err
	}
	if n := opts.SnapshotSpace; n != 0 && (n < 1<<20 || n > 2*maxDisk) {
		return opts, tool.Errorf(tool.Invalid, "snapshot_space is %s; it must be from %s to %s", size(float64(n)), size(1<<20), size(2*maxDisk)).In("snapshot_space")
	}
	if n := opts.MaxProcesses; n < 0 || n > maxProcesses {
		return opts, tool.Errorf(tool.Invalid, "max_processes is %d; it must be from 1 to %d", n, maxProcesses).In("max_processes")
	}
	if opts.TTL < 0 {
		return opts, tool.Errorf(tool.Invalid, "ttl is %s; it is a time from now and can't be negative", opts.TTL).In("ttl")
	}
	if opts.Idle < 0 {
		return opts, tool.Errorf(tool.Invalid, "idle is %s; it is a time from now and can't be negative", opts.Idle).In("idle")
	}
	if err := opts.checkCalls(); err != nil {
		return opts, err
	}
	switch opts.Isolation {
	case "", sandbox.IsolationDefault, sandbox.IsolationGVisor:
	default:
		return opts, tool.Errorf(tool.Invalid, "isolation is %q; it must be %s or %s", opts.Isolation, sandbox.IsolationDefault, sandbox.IsolationGVisor).In("isolation")
	}
	switch opts.Paths {
	case "", vfs.ASCII, vfs.Any:
	default:
		return opts, tool.Errorf(tool.Invalid, "paths is %q; it must be %s or %s", opts.Paths, vfs.ASCII, vfs.Any).In("paths")
	}
	if opts.Profile != "" && !slices.Contains(profiles.Names(), opts.Profile) {
		return opts, tool.Errorf(tool.Invalid, "there is no profile %q; the profiles are %s", opts.Profile, strings.Join(profiles.Names(), ", ")).In("profile")
	}
	if opts.UserNS != "" && opts.UserNS != usernsAuto && opts.UserNS != usernsShared {
		return opts, tool.Errorf(tool.Invalid, "userns is %q; it must be %s or %s, or left out", opts.UserNS, usernsAuto, usernsShared).In("userns")
	}
	if opts.Seccomp != "" {
		if !filepath.IsAbs(opts.Seccomp) {
			return opts, tool.Errorf(tool.Invalid, "seccomp must be an absolute path").In("seccomp")
		}
		if opts.Isolation == sandbox.IsolationGVisor {
			return opts, tool.Errorf(tool.Invalid, "seccomp and isolation gvisor exclude each other: gVisor answers programs' calls itself and loads no profile").In("seccomp")
		}
		if _, err := podman.CheckSeccomp(opts.Seccomp); err != nil {
			return opts, tool.AsError(toolerr.Of(err)).In("seccomp")
		}
	}
	if err := opts.checkEgress(); err != nil {
		return opts, err
	}
	if err := opts.checkServices(); err != nil {
		return opts, err
	}
	if opts.Image == "" {
		opts.Image = images.Default
	}
	if err := opts.Pull.check(opts.Image); err != nil {
		return opts, err
	}
	opts.Limits = opts.Limits.WithDefaults()
	opts.Env = maps.Clone(opts.Env)
	return opts, nil
}

// Bounds of what one call may be given.
const (
	minCallTime  = 100 * time.Millisecond
	maxCallTime  = 24 * time.Hour
	maxCallChars = tool.MaxArguments
)

func (o *SessionOptions) checkCalls() error {
	for name, d := range map[string]time.Duration{"max_timeout": o.MaxTimeout, "eval_timeout": o.MaxEvalTimeout} {
		if d != 0 && (d < minCallTime || d > maxCallTime) {
			return tool.Errorf(tool.Invalid, "%s is %s; it must be from %s to %s", name, d, minCallTime, maxCallTime).In(name)
		}
	}
	if n := o.MaxCode; n != 0 && (n < 1 || n > maxCallChars) {
		return tool.Errorf(tool.Invalid, "max_code is %d; it must be from 1 to %d characters", n, maxCallChars).In("max_code")
	}
	if n := o.MaxOutput; n != 0 && (n < evaltool.StreamChars || n > maxOutput) {
		return tool.Errorf(tool.Invalid, "max_output is %d; it must be from %d to %d characters", n, evaltool.StreamChars, maxOutput).In("max_output")
	}
	return nil
}

// maxOutput is the most of [SessionOptions.MaxOutput]: what a result can carry of it.
const maxOutput = 1 << 20

// minSnapshotSpace is the least that is given without being asked for, in bytes: what
// is known of each file takes room too.
const minSnapshotSpace = 16 << 20

// snapshotSpace is what was asked for, or the default.
func (o *SessionOptions) snapshotSpace() int64 {
	if o.SnapshotSpace > 0 {
		return o.SnapshotSpace
	}
	return max(2*o.Limits.WithDefaults().Disk, minSnapshotSpace)
}

func checkLimits(l sandbox.Limits) error {
	for _, c := range []struct {
		name            string
		value, min, max float64
		write           func(float64) string
	}{
		{"cpus", l.CPUs, 0.01, 4096, plain},
		{"memory", float64(l.Memory), 16 << 20, math.MaxInt64, size},
		{"pids", float64(l.PIDs), 32, 4 << 20, plain}, // the agent has up to 13; the kernel's own limit
		{"tmp", float64(l.Tmp), 1 << 20, float64(l.WithDefaults().Memory / 2), size},
		{"disk", float64(l.Disk), 1 << 20, maxDisk, size},
		{"inodes", float64(l.Inodes), 100, math.MaxUint32, plain},
		{"nofile", float64(l.NoFile), 256, math.MaxInt64, plain},
		{"file_bytes", float64(l.FileSize), 1 << 20, math.MaxInt64, size},
	} {
		switch {
		case c.value == 0: // the default
		case !(c.value >= c.min):
			return tool.Errorf(tool.Invalid, "%s is %s; it must be at least %s", c.name, c.write(c.value), c.write(c.min)).In(c.name)
		case c.value > c.max && c.name == "tmp":
			return tool.Errorf(tool.Invalid, "tmp is %s; it must be at most half of the memory, here %s: what lies in /tmp is memory", c.write(c.value), c.write(c.max)).In(c.name)
		case c.value > c.max:
			return tool.Errorf(tool.Invalid, "%s is %s; it must be at most %s", c.name, c.write(c.value), c.write(c.max)).In(c.name)
		}
	}
	return nil
}

// size writes bytes in the largest unit that tells them exactly.
func size(v float64) string {
	s := units.BytesSize(v)
	if n, err := units.RAMInBytes(s); err == nil && float64(n) == v {
		return s
	}
	return plain(v) + " bytes"
}

// plain writes a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return tool.Errorf(tool.Invalid, "env has %d entries; at most %d are taken", len(env), maxEnv).In("env")
	}
	for k, v := range env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00\n"):
			return tool.Errorf(tool.Invalid, "env has a name that is empty or holds =, NUL or a newline").In("env")
		case len(k) > maxEnvName:
			return tool.Errorf(tool.Invalid, "env has a name of %d characters; at most %d are taken", len(k), maxEnvName).In("env")
		case len(v) > maxEnvValue || strings.Contains(v, "\x00"):
			return tool.Errorf(tool.Invalid, "the value of env.%s holds NUL or is over %d characters", k, maxEnvValue).In("env")
		}
	}
	return nil
}

// Secret is one value that programs find as a file, /run/secrets/NAME, in a
// tmpfs that programs of the session alone can read. It is in no environment, no
// command line, no session.json, log or snapshot, and its value is covered with
// stars in what tools and programs answer, as it stands and as JSON writes it.
// Exactly one field is set.
type Secret struct {
	// File of the host whose content is the value. Its path stays with a kept
	// session, and it is read again whenever a container is made.
	File string `json:"file,omitempty"`
	// Value is kept in memory only. A kept session's holder keeps it, as long as
	// it lives; afterwards programs are unavailable until [Session.SetSecrets].
	Value []byte `json:"-"`
}

// inner and outer are the secrets inside and outside of the façade.
func inner(all map[string]Secret) map[string]box.Secret {
	return converted(all, func(s Secret) box.Secret { return box.Secret(s) })
}

func outer(all map[string]box.Secret) map[string]Secret {
	return converted(all, func(s box.Secret) Secret { return Secret(s) })
}

func converted[A, B any](all map[string]A, to func(A) B) map[string]B {
	if all == nil {
		return nil
	}
	out := make(map[string]B, len(all))
	for name, s := range all {
		out[name] = to(s)
	}
	return out
}

// named are secrets without their values.
func named(all map[string]Secret) map[string]Secret {
	return converted(all, func(s Secret) Secret { return Secret{File: s.File} })
}
