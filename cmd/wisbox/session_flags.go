package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/config"
)

// sessionFlags are the flags of every command that opens a session.
type sessionFlags struct {
	given wisbox.SessionOptions // by the flags that are a setting as it is

	build      string // a Containerfile
	env        envFlags
	secrets    []string
	mounts     []string
	services   []string
	allowRoots []string
	seccomp    string
	steps      bool
	noUndo     bool
	egress     string

	flags *pflag.FlagSet // these alone

	alone     bool                      // ignore configuration files
	taken     map[string]*config.Chosen // by flag: the value that files gave
	fileTools *config.Chosen            // from a file; nil without one
}

func (f *sessionFlags) register(all *pflag.FlagSet) {
	flags := pflag.NewFlagSet("session", pflag.ContinueOnError)
	defer all.AddFlagSet(flags)
	f.flags = flags
	f.registerLimits(flags)
	f.registerImage(flags)
	flags.StringVar(&f.build, "containerfile", "", "Containerfile `FILE` to build the image from; an image of the same content is reused")
	flags.StringVar(&f.given.Template, "template", "", "start from a `TEMPLATE` of wisbox template list: its files, and its image, variables, profile and isolation unless flags set these")
	f.env.register(flags, "every program")
	flags.StringArrayVar(&f.secrets, "secret", nil, "secret in /run/secrets: `NAME=FILE`, or NAME=env for the variable NAME; repeatable")
	flags.StringArrayVar(&f.mounts, "mount", nil, "copy in a host file or folder: `HOST[:DEST]`, then ,include=GLOB ,exclude=GLOB ,max-bytes=N or ,follow-symlinks; repeatable")
	flags.StringArrayVar(&f.allowRoots, "allow-root", nil, "refuse mounts from outside of this `DIR`; repeatable")
	flags.StringArrayVar(&f.services, "service", nil, "run a database or another service at the session's 127.0.0.1: `NAME=IMAGE`, then ,env=K=V ,port=N ,memory=SIZE or ,dir=DIR; see docs/network.md; repeatable")
	f.registerNetwork(flags)
	flags.BoolVar(&f.given.ReadBeforeWrite, "read-before-write", false, "refuse to change an existing file that the client hasn't read, or that others have changed since")
	flags.StringVar((*string)(&f.given.Paths), "paths", "", "file names that the tools take, `KIND` ascii, or any for Unicode and names of up to 255 bytes (default ascii)")
	flags.StringVar(&f.given.DigestTag, "tag", "", "use the digest that wisbox lab digest set --global --tag `TAG` has set (default latest)")
	flags.BoolVar(&f.given.Fsync, "fsync", false, "answer file tools, snapshots and restores only after their changes are on disk")
	flags.BoolVar(&f.steps, "auto-snapshot", false, "record each call's changes as a step for wisbox undo (default in sessions of create, agent and mcp)")
	flags.BoolVar(&f.noUndo, "no-undo", false, "record no steps: calls in a workspace of many files are quicker, and wisbox undo finds nothing")
	flags.BoolVar(&f.given.RollbackOnFailure, "rollback-on-failure", false, "undo the changes of a failed call; implies --auto-snapshot")
	flags.BoolVar(&f.given.Strict, "strict", false, "refuse to start if the host doesn't enforce every limit")
	flags.StringVar(&f.given.UserNS, "userns", "", "user IDs on the host, `KIND` auto for the session's own range (rootful Podman), or shared (default auto if it costs nothing)")
	flags.StringVar(&f.seccomp, "seccomp", "", "`FILE` with another seccomp profile; wisbox reports what it allows beyond its own, and refuses that with --strict")
	flags.StringVar((*string)(&f.given.Isolation), "isolation", os.Getenv("WISBOX_ISOLATION"), "`KIND` default, or gvisor for gVisor's kernel, which needs runsc on PATH or in $WISBOX_RUNSC (default $WISBOX_ISOLATION, then default)")
	flags.Var(timeFlag{&f.given.TTL}, "ttl", "end the session this `TIME` after its creation, e.g. 2h (default never)")
	flags.Var(timeFlag{&f.given.Idle}, "idle", "end the session this `TIME` after its last use, e.g. 30m (default never)")
	markRare(flags, "allow", "cpus", "disk", "env", "image", "memory", "mount", "no-undo", "secret")
}

// undoByDefault makes a new session record steps unless a flag or a file says otherwise: a person or
// an agent will work in it for a while.
func (f *sessionFlags) undoByDefault() {
	f.steps = true
	f.flags.Lookup("auto-snapshot").DefValue = "true"
}

// registerNetwork adds the flags that open the network.
func (f *sessionFlags) registerNetwork(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.given.Allow, "allow", nil, "let programs connect to a `HOST`[:PORT,…], *.HOST, or the preset python, node, debian, git, go or rust; repeatable; see docs/network.md")
	flags.StringArrayVar(&f.given.Deny, "deny", nil, "deny a `HOST`[:PORT,…] or *.HOST, also if --allow names it; repeatable")
	flags.StringArrayVar(&f.given.Inject, "inject", nil, "add a --secret to requests outside of the sandbox, where programs don't see it: a `RULE` HOST:HEADER=[SCHEME ]SECRET; see docs/network.md; repeatable")
	flags.Var(sizeFlag{&f.given.EgressOut}, "egress-out", "`SIZE` that programs may send to other hosts in all, from 1m to 1024g (default 64m)")
	flags.StringVar(&f.given.EgressVia, "egress-via", "", "`URL` of a proxy, http:// or https://, through which all connections of --allow go")
}

// registerRecord adds the flag of commands that show recorded connections.
func (f *sessionFlags) registerRecord(flags *pflag.FlagSet) {
	flags.StringVar(&f.egress, "egress", "", "`KIND` record: let programs connect to all public hosts on ports 443 and 80; the end of run, and wisbox egress, print the --allow rules that they needed")
}

// egressRecord is the only value of --egress.
const egressRecord = "record"

// registerLimits adds the flags that bound a session.
func (f *sessionFlags) registerLimits(flags *pflag.FlagSet) {
	flags.Float64Var(&f.given.Limits.CPUs, "cpus", 0, "processors, `N` from 0.01 to 4096 (default 1)")
	flags.Var(sizeFlag{&f.given.Limits.Memory}, "memory", "`SIZE` of memory without swap, at least 16m (default 1g)")
	flags.Int64Var(&f.given.Limits.PIDs, "pids", 0, "processes and threads, `N` from 32 to 4194304 (default 256)")
	flags.Var(sizeFlag{&f.given.Limits.Tmp}, "tmp", "`SIZE` of /tmp and, where it fits, of the home directory; from 1m to half of the memory (default 256m, or that half if it is less)")
	flags.Var(sizeFlag{&f.given.Limits.Shm}, "shm-size", "`SIZE` of /dev/shm, from 1m to half of the memory (default a quarter of the memory)")
	flags.Var(sizeFlag{&f.given.Limits.Disk}, "disk", "`SIZE` of the workspace, from 1m to 8192g (default 2g)")
	flags.Int64Var(&f.given.Limits.Inodes, "inodes", 0, "entries of the workspace, `N` from 100 to 4294967295 (default 200000)")
	flags.Var(timeFlag{&f.given.MaxTimeout}, "max-timeout", "longest `TIME` that a call of shell_execute may ask for, from 100ms to 24h (default 2m)")
	flags.Var(timeFlag{&f.given.MaxEvalTimeout}, "eval-timeout", "longest `TIME` that a call of evaluate_python may ask for, from 100ms to 24h (default 5s)")
	flags.IntVar(&f.given.MaxCode, "max-code", 0, "`N` characters of code that evaluate_python takes, at most 4194304 (default 2000)")
	flags.IntVar(&f.given.MaxOutput, "max-output", 0, "`N` characters of stdout and of stderr that evaluate_python returns, from 4096 to 1048576 (default 4096)")
	flags.Var(sizeFlag{&f.given.SnapshotSpace}, "snapshot-space", "`SIZE` that snapshots may take on the host, e.g. 512m or 2g; at the limit wisbox removes the oldest steps (default twice the disk)")
}

func (f *sessionFlags) registerImage(flags *pflag.FlagSet) {
	flags.StringVar(&f.given.Image, "image", "", "`IMAGE` to run (default: the one that wisbox image build makes)")
	flags.StringVar((*string)(&f.given.Pull), "pull", "", "`WHEN` to fetch the image from its registry: missing, never or always (default missing if --image begins with a registry, e.g. docker.io/; images without one are never pulled)")
}

// refuseFor refuses flags that have no effect on an existing session.
func (f *sessionFlags) refuseFor(session string) (err error) {
	f.alone = session != ""
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if session != "" && flag.Changed {
			err = usageError{fmt.Errorf("--%s is for a new session; --session %s has what it was created with", flag.Name, session)}
		}
	})
	return err
}

// options returns the session options for the flags. An error names the flag, or the key of a file.
func (f *sessionFlags) options() (*wisbox.SessionOptions, error) {
	opts, err := f.checked()
	return opts, f.blamed(err)
}

func (f *sessionFlags) checked() (*wisbox.SessionOptions, error) {
	if err := f.refuseZero("cpus", "pids", "inodes", "max-code", "max-output"); err != nil {
		return nil, err
	}
	if err := checkImage("--image", f.given.Image); err != nil {
		return nil, err
	}
	if f.given.Image != "" && f.build != "" {
		return nil, usageError{errors.New("--image and --containerfile exclude each other; give one of the two")}
	}
	if f.noUndo && (f.given.RollbackOnFailure || f.flags.Changed("auto-snapshot")) {
		return nil, usageError{errors.New("--no-undo excludes --auto-snapshot and --rollback-on-failure; give one of them")}
	}
	if f.egress != "" && f.egress != egressRecord {
		return nil, usageError{fmt.Errorf("--egress is %q; the one kind is %s", f.egress, egressRecord)}
	}
	o := f.given
	opts := &o
	opts.AutoSnapshot, opts.EgressRecord = f.steps && !f.noUndo, f.egress == egressRecord
	env, err := f.environment()
	if err != nil {
		return nil, err
	}
	opts.Env = env
	if opts.Secrets, err = parseSecrets(f.secrets); err != nil {
		return nil, err
	}
	if opts.Services, err = parseServices(f.services); err != nil {
		return nil, err
	}
	if err := opts.Check(); err != nil {
		return nil, asUsage(named(err, f.flags))
	}
	return opts, f.addMounts(opts)
}

// refuseZero refuses an explicit zero where zero would mean the default.
func (f *sessionFlags) refuseZero(names ...string) error {
	for _, name := range names {
		flag := f.flags.Lookup(name)
		if (flag.Changed || f.taken[name] != nil) && flag.Value.String() == "0" {
			return usageError{fmt.Errorf("--%s is 0; leave it out for the default", name)}
		}
	}
	return nil
}

func (f *sessionFlags) environment() (map[string]string, error) {
	all, err := f.env.list()
	if err != nil {
		return nil, err
	}
	env := make(map[string]string, len(all))
	for _, pair := range all {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env, nil
}

// isTerminal reports whether w is a terminal. Colour and progress go only to terminals.
func isTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
