package wisbox

import (
	"context"
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

	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/settings"
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
	// Single limits the state root to one session, whose workspace is CacheDir/workspace: a directory that can exist
	// before the session, as in a Pod. For a second session the error is unsupported.
	Single bool
	// Podman chooses the Podman to use. Default: [podman.New] finds or starts one.
	Podman podman.Options
	// Backend replaces Podman, mainly in tests. The Manager doesn't close it.
	Backend sandbox.Backend
	// AllowedRoots are the host directories that mounts may come from. Default none, so
	// that mounts are refused.
	AllowedRoots []string
	// Pool keeps started containers ready. Default none.
	Pool PoolOptions
	// Digests supplies the digest of a session that has none of its own. Default: the
	// digests that callers set at global scope, kept in the state root.
	Digests digest.Overrides
	// Wasm configures Python in WebAssembly, the sandbox "wasm" of
	// evaluate_python. The zero value works once the module is installed.
	Wasm wasm.Options
	// Holder is the command that holds a kept session for its clients. It gets the session's
	// name as its last argument, and calls [Manager.Hold] with [HoldReady]. Default none: the
	// work of a kept session is done in this process, and its kept interpreters and processes
	// end with it. The command line uses `wisbox __hold`.
	Holder []string
	// Far is the address of another machine that has the sessions. ssh://[USER@]HOST[:PORT][/PATH-OF-WISBOX] needs the
	// same version of wisbox there. https://HOST[:PORT] is a `wisbox serve --allow-remote` of the same version; the
	// sessions belong to an API key (http:// only on the loopback interface). Mounts and secrets are read here and
	// sent, and [Session.Apply] and [Session.Branch] write here. Methods that need a session's directory on this
	// machine are unsupported or return "". A session that isn't kept is removed with its handle, or an hour after its
	// client was last connected. See docs/far.md. kube:CONTEXT/NAMESPACE is a namespace of a Kubernetes cluster in
	// which each session is a Pod; see docs/cluster.md. Default none: this machine.
	Far string
	// FarKey is the API key for a Far that begins with https://, see [Options.Far]. Default:
	// $WISBOX_API_KEY. It isn't sent to any other machine.
	FarKey string
	// FarCAFile is a PEM file of the authorities that sign such a machine's certificate.
	// Default: those of the system, or of $SSL_CERT_FILE.
	FarCAFile string
	// FarConnect replaces ssh as the connection to Far. It returns a stream to a
	// [Manager.ServeFar], which outlives ctx. It is called again if the stream breaks.
	FarConnect func(ctx context.Context) (io.ReadWriteCloser, error)
	// Version is the version that this wisbox reports to other machines. Default: the
	// version of the main module.
	Version string
	// ClusterError, if set, replaces errors that say something of the cluster of a Far that begins with kube:, for
	// callers who must not learn of it. It keeps their kinds, and may be called from many goroutines
	// at once. Default: they stay as they are.
	ClusterError func(error) error
	// Logger gets details that agents don't see: causes, phases, clean-up. Default: none.
	Logger *slog.Logger
	// Tools returns the embedder's own tools for a session that is being opened; nil
	// adds none. [Session.Call] runs them in this process, and records them like all
	// others. Such a tool should change the workspace through Session.Call, so that the change
	// has a step and a record. A tool with the name of one of wisbox's own replaces it.
	Tools func(*Session) []tool.Tool
	// OnEvent is called after every tool call, from the call's goroutine.
	OnEvent func(Event)
	// Meter counts the calls of all sessions. Default none; package metrics has one.
	Meter Meter
	// TracerProvider gets a span for each call, and below it one for each container that is
	// created and each program that runs. Default none. If a holder does the work, its own
	// provider, if any, gets those spans as children of the client's: the request carries the
	// trace as W3C Trace Context.
	TracerProvider trace.TracerProvider
}

// Meter counts a Manager's calls and programs. Its methods may be called from many goroutines
// at once.
type Meter interface {
	// Call is called after every call of every session, whichever function gets its events.
	Call(Event)
	// Ended is called with the [sandbox.Status] of a program that outlived its call, such as one
	// of [Session.Start] or process_start, when it has ended. The holder of a session counts its
	// own programs.
	Ended(verdict string)
}

// Reporter is a Meter that can report its counts. A holder with a Reporter answers
// [Manager.HolderReports].
type Reporter interface {
	Meter
	// Report writes all counts, in a form that the embedder chooses.
	Report(io.Writer) error
}

// SessionOptions configure a session. The zero value is an ephemeral session
// with the default image and limits.
//
// The tags declare who may choose a setting, and how the value joins the one there is: tenant for clients with a key
// (own replaces the server's value, most may be at most that, either is true if one of them is, first replaces it unless
// empty), archive for those of an archive with [LoadOptions.WithSettings] (missing is taken if the session has none,
// tighter if it bounds more, left never). joined and checked have code of their own, see package internal/settings.
type SessionOptions struct {
	// Name is the session's ID, which matches ^[a-z0-9][a-z0-9-]{0,62}$. Default: a ULID.
	Name string `json:"-"`
	// Kept makes the session outlive its opener, until [Manager.Remove], TTL or Idle removes it.
	// Other sessions are removed with their opener, however it ends.
	Kept bool `json:"-"`
	// Image is the image to run. Default: [images.Default].
	Image string `json:"image" tenant:"checked" archive:"checked"`
	// Pull decides when Open fetches the image from the registry that its name begins with. Default
	// [PullMissing]. Images below localhost/, which include wisbox's own, images named by an ID and
	// images named without a registry are never pulled; PullAlways is invalid for them. A pulled
	// image stays when Open fails.
	Pull Pull `json:"-"`
	// OnPull gets the progress of the pull, from one goroutine.
	OnPull func(PullProgress) `json:"-"`
	// Limits bound processor, memory, processes and disk; see [sandbox.Limits] for defaults.
	Limits sandbox.Limits `json:"limits" tenant:"most" archive:"tighter"`
	// Env is added for every program: at most 64 entries, names of 80 and
	// values of 512 characters. Nothing of the host's environment is passed on.
	Env map[string]string `json:"env,omitempty" tenant:"joined" archive:"joined"`
	// ExpandEnv expands ${containerEnv:NAME} and ${containerEnv:NAME:default} in the values of Env, where NAME is a
	// variable of programs without Env, such as PATH.
	ExpandEnv bool `json:"expand_env,omitempty" tenant:"either" archive:"missing"`
	// UserHome also mounts the workspace at /home/user, which becomes the HOME of programs, and calls their user "user"
	// in /etc/passwd. Programs that were written for other sandboxes expect that.
	UserHome bool `json:"user_home,omitempty" tenant:"own" archive:"missing"`
	// MaxProcesses is the maximum of processes of [Session.StartProcess] and process_start that
	// run at once, default 16. Each takes at least six of Limits.PIDs.
	MaxProcesses int `json:"max_processes,omitempty" tenant:"most" archive:"tighter"`
	// Secrets are files in /run/secrets, see [Secret]: at most 64, each with at most 64 KiB and
	// with a line of at least 8 bytes.
	Secrets map[string]Secret `json:"secrets,omitempty" archive:"left"`
	// Template is the ID or the name of a template of [Session.CreateTemplate]. The session begins
	// with its files and, unless they are set here, its image, variables, profile and isolation.
	// Mounts are copied in after it. [Session.Reset] empties the workspace; the template's files
	// are the session's first snapshot.
	Template string `json:"template,omitempty" tenant:"checked" archive:"-"`
	// Mounts are copied into the workspace when the session opens, in order.
	Mounts []hostmount.Mount `json:"mounts,omitempty" tenant:"own" archive:"left"`
	// MountsFrom is the machine that the mounts were copied from, if it isn't the session's own. Paths of mounts are
	// paths of that machine. [Options.Far] sets it.
	MountsFrom string    `json:"mounts_from,omitempty" tenant:"own" archive:"-"`
	packed     io.Reader // the mounted files from there
	// AllowedRoots are roots for these mounts, in addition to the Manager's. They are kept with the
	// session, whose mounts [Session.Reset] copies again.
	AllowedRoots []string `json:"allowed_roots,omitempty" archive:"left"`
	// OnMount gets the progress of the copying.
	OnMount func(hostmount.Progress) `json:"-"`
	// OnMounted gets the report of the copied and the skipped files.
	OnMounted func(*hostmount.Report) `json:"-"`
	// KeepGiven keeps a snapshot of the mounted files, with which [Session.Diff] and
	// [Session.Apply] compare. A kept session always keeps one; for others it costs a scan of the
	// mounted files at the opening, and room on the disk.
	KeepGiven bool `json:"keep_given,omitempty" tenant:"own" archive:"-"`
	// Paths is the grammar of the tools' paths: [vfs.ASCII], the default, or [vfs.Any], with which
	// names of files and commands of shell_execute may be Unicode.
	Paths vfs.Grammar `json:"paths,omitempty" tenant:"own" archive:"checked"`
	// ReadBeforeWrite refuses to change an existing file that wasn't read.
	ReadBeforeWrite bool `json:"read_before_write,omitempty" tenant:"own" archive:"missing"`
	// AutoSnapshot makes a step before each call that can change the workspace: a
	// snapshot with the call's ID, to which [Session.Undo] returns. Each call then takes longer, by
	// two scans of the workspace.
	AutoSnapshot bool `json:"auto_snapshot,omitempty" tenant:"own" archive:"missing"`
	// SnapshotSpace is the maximum of bytes for the session's snapshots on the host's disk. At the
	// limit, the oldest steps and other automatic snapshots are deleted; if none is left, a new
	// snapshot is no_space. Default: twice the disk limit, at least 16 MiB.
	SnapshotSpace int64 `json:"snapshot_space,omitempty" tenant:"most" archive:"tighter" unit:"bytes"`
	// RollbackOnFailure restores the workspace after a call that fails: one with an error or with a
	// result that is marked failed, which a program's exit code alone isn't. It implies
	// AutoSnapshot, and calls that can change the workspace wait for each other. Changes that a lasting
	// program makes meanwhile are lost.
	RollbackOnFailure bool `json:"rollback_on_failure,omitempty" tenant:"own" archive:"missing"`
	// Pod holds the gateway's annotations of the session's Pod; only for sessions on Kubernetes.
	Pod PodNotes `json:"-"`
	// OnEvent is called after every call of this session instead of the Manager's.
	OnEvent func(Event) `json:"-"`
	// Fsync puts each snapshot, restore and change of a file tool on disk before the call returns,
	// so that it survives a crash of the machine. By default, it survives only a crash of processes.
	Fsync bool `json:"fsync,omitempty" tenant:"own" archive:"missing"`
	// Profile determines the names and shapes of the tools of [Session.Call], see
	// [ToolProfile]. It is kept with the session. Default "wisbox".
	Profile string `json:"profile,omitempty" tenant:"first" archive:"missing"`
	// Isolation is the level of isolation from the host's kernel; default
	// [sandbox.IsolationDefault]. If the host lacks the level, the first program is unavailable, and
	// the error says what to install.
	Isolation sandbox.Isolation `json:"isolation,omitempty" tenant:"checked" archive:"checked"`
	// UserNS "auto" gives the session's programs user IDs that no other session has, which needs a
	// rootful Podman; "shared" gives them the IDs of all sessions of this host user. Default: own
	// IDs if they cost nothing, that is, if the storage can be mounted with shifted IDs. A kept
	// session keeps its IDs.
	UserNS string `json:"userns,omitempty" archive:"missing"`
	// Seccomp is the absolute path of a host file with a seccomp profile, to use instead of wisbox's
	// own. It must deny calls that it doesn't name. [Session.Inspect] reports
	// the calls that it allows beyond wisbox's own; Strict refuses them. A kept session
	// keeps the path, and reads it for each container. Not with IsolationGVisor.
	Seccomp string `json:"seccomp,omitempty" archive:"left"`
	// Strict refuses to start if the host doesn't enforce every limit.
	Strict bool `json:"strict,omitempty" tenant:"either" archive:"missing"`
	// MaxTimeout is the maximum timeout of shell_execute, from 0.1 s to a day, default 120 s.
	MaxTimeout time.Duration `json:"max_timeout,omitempty" tenant:"most" archive:"tighter"`
	// MaxEvalTimeout is the maximum timeout of evaluate_python, from 0.1 s to a day, default 5 s.
	MaxEvalTimeout time.Duration `json:"max_eval_timeout,omitempty" tenant:"most" archive:"tighter"`
	// MaxCode is the maximum length of evaluate_python's code in characters, at most 4 Mi, default
	// 2,000.
	MaxCode int `json:"max_code,omitempty" tenant:"most" archive:"tighter"`
	// MaxOutput is the maximum of characters of stdout and of stderr in a result of
	// evaluate_python, from 4,096, the default, to 1 Mi.
	MaxOutput int `json:"max_output,omitempty" tenant:"most" archive:"tighter"`
	// Allow has the rules for connections that programs may make, see package egress/policy:
	// HOST[:PORT,…], *.HOST, tcp:HOST:PORT, private:HOST, host:PORT, public, or a preset
	// such as python. Default none, which means no network at all. If a sandbox's
	// network can't be used, no program starts.
	Allow []string `json:"allow,omitempty" tenant:"own" archive:"egress"`
	// Deny has the rules for connections that they may not make. It takes precedence over Allow.
	Deny []string `json:"deny,omitempty" tenant:"own" archive:"egress"`
	// Inject adds secrets to requests on their way, as
	// HOST:HEADER=[SCHEME ]SECRET[,methods=GET|HEAD][,path=/v1/][,env=NAME][,alone=yes], see
	// policy.Injection. Programs don't get such a secret.
	Inject []string `json:"inject,omitempty" archive:"egress"`
	// EgressVia is the URL of a proxy through which all connections to public names go.
	// It is kept with the session, including a password in it.
	EgressVia string `json:"egress_via,omitempty" archive:"egress"`
	// EgressOut is the maximum of bytes that programs may send to other hosts in total, from 1 MiB
	// to 1 TiB, default 64 MiB. It bounds the size of a leak.
	EgressOut int64 `json:"egress_out,omitempty" archive:"egress"`
	// EgressRecord allows public hosts in addition to Allow; Deny takes precedence. Recorded of
	// [Session.Egress] then lists the rules that the session needed so far. A kept session keeps
	// them.
	EgressRecord bool `json:"egress_record,omitempty" archive:"egress"`
	// Services are containers beside the session's, such as a database. They start before its first
	// program and end with its container. Programs reach them at 127.0.0.1. Not with
	// IsolationGVisor.
	Services []sandbox.Companion `json:"services,omitempty" archive:"left"`
	// Digest is the digest of the workspace that a caller has set; default one made from the files.
	Digest *digest.Text `json:"digest,omitempty" archive:"missing"`
	// DigestTag chooses among the digests of [Options.Digests]; default
	// [digest.DefaultTag].
	DigestTag string `json:"digest_tag,omitempty" archive:"missing"`
	// TTL ends a kept session that long after its creation; 0 means never.
	TTL time.Duration `json:"ttl,omitempty" tenant:"own" archive:"missing"`
	// Idle ends a kept session that long after its last use; 0 means never.
	Idle time.Duration `json:"idle,omitempty" tenant:"own" archive:"missing"`
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

// maxDisk is the maximum size of a workspace in bytes: that of an image file on the usual file
// systems.
const maxDisk = 8 << 40

// Check validates the options before anything is created. On the host it reads only the files that they name.
func (o *SessionOptions) Check() error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	return box.CheckSecrets(inner(opts.Secrets))
}

// withDefaults checks the options and fills in defaults.
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
	if opts.DigestTag != "" {
		if err := digest.CheckTag(opts.DigestTag); err != nil {
			return opts, err
		}
	}
	if opts.Profile != "" && !slices.Contains(profiles.Names(), opts.Profile) {
		return opts, tool.Errorf(tool.Invalid, "unknown profile %q; the profiles are %s", opts.Profile, strings.Join(profiles.Names(), ", ")).In("profile")
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

// Bounds of one call.
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

// maxOutput is the maximum of [SessionOptions.MaxOutput]: a result can't carry more.
const maxOutput = 1 << 20

// minSnapshotSpace is the minimum default in bytes, since the records of files take room as well.
const minSnapshotSpace = 16 << 20

// snapshotSpace returns the requested size, or the default.
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
		{"shm_size", float64(l.Shm), 1 << 20, float64(min(l.WithDefaults().Memory/2, l.WithDefaults().Memory/4*3-l.WithDefaults().Tmp)), size},
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
			return tool.Errorf(tool.Invalid, "tmp is %s; it must be at most half of the memory, here %s, since files in /tmp are in memory", c.write(c.value), c.write(c.max)).In(c.name)
		case c.value > c.max && c.name == "shm_size":
			return tool.Errorf(tool.Invalid, "shm_size is %s; it must be at most %s, since files in /dev/shm are in memory: half of the memory, and with /tmp three quarters; raise memory, or lower tmp", c.write(c.value), c.write(c.max)).In(c.name)
		case c.value > c.max:
			return tool.Errorf(tool.Invalid, "%s is %s; it must be at most %s", c.name, c.write(c.value), c.write(c.max)).In(c.name)
		}
	}
	return nil
}

// size writes a number of bytes.
func size(v float64) string { return settings.Bytes(int64(v)) }

// plain writes a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return tool.Errorf(tool.Invalid, "env has %d entries; the maximum is %d", len(env), maxEnv).In("env")
	}
	for k, v := range env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00\n"):
			return tool.Errorf(tool.Invalid, "env has a name that is empty or has =, NUL or a newline; use another name").In("env")
		case len(k) > maxEnvName:
			return tool.Errorf(tool.Invalid, "env has a name of %d characters; the maximum is %d", len(k), maxEnvName).In("env")
		case len(v) > maxEnvValue || strings.Contains(v, "\x00"):
			return tool.Errorf(tool.Invalid, "the value of env.%s has NUL or more than %d characters; use a file for it", k, maxEnvValue).In("env")
		}
	}
	return nil
}

// Secret is a value that programs find as a file, /run/secrets/NAME, in a tmpfs that only programs
// of the session can read. It is never in an environment, a command line, session.json, a log or a
// snapshot. In answers of tools and programs, stars replace the value, both as it is and in the
// form of JSON. Exactly one field must be set.
type Secret struct {
	// File is a host file whose content is the value. A kept session keeps its path, and reads it
	// again for each new container.
	File string `json:"file,omitempty"`
	// Value is kept only in memory. A kept session's holder keeps it as long as it lives; after
	// that, programs are unavailable until [Session.SetSecrets].
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

// named returns secrets without their values.
func named(all map[string]Secret) map[string]Secret {
	return converted(all, func(s Secret) Secret { return Secret{File: s.File} })
}
