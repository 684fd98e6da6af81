package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// sessionFlags are the flags of every command that opens a session.
type sessionFlags struct {
	image      string
	cpus       float64
	memory     string
	pids       int64
	tmp        string
	disk       string
	inodes     int64
	env        []string
	secrets    []string
	mounts     []string
	allowRoots []string
	rbw        bool
	fsync      bool
	strict     bool
	isolation  string
	seccomp    string
	userns     string
	steps      bool
	rollback   bool
	ttl, idle  time.Duration

	flags *pflag.FlagSet // these alone
}

func (f *sessionFlags) register(all *pflag.FlagSet) {
	flags := pflag.NewFlagSet("session", pflag.ContinueOnError)
	defer all.AddFlagSet(flags)
	f.flags = flags
	flags.StringVar(&f.image, "image", "", "`IMAGE` to run (default: the one that wisbox image build makes)")
	flags.Float64Var(&f.cpus, "cpus", 0, "processors, `N` from 0.01 to 4096 (default 1)")
	flags.StringVar(&f.memory, "memory", "", "`SIZE` of memory without swap, as 512m or 2g; at least 16m (default 1g)")
	flags.Int64Var(&f.pids, "pids", 0, "processes and threads, `N` from 16 to 4194304 (default 256)")
	flags.StringVar(&f.tmp, "tmp", "", "`SIZE` of /tmp, from 1m to half of the memory (default 256m, or that half where it is less)")
	flags.StringVar(&f.disk, "disk", "", "`SIZE` of the workspace, from 1m to 8192g (default 2g)")
	flags.Int64Var(&f.inodes, "inodes", 0, "entries of the workspace, `N` from 100 to 4294967295 (default 200000)")
	flags.StringArrayVar(&f.env, "env", nil, "variable for every program, as `NAME=VALUE`; repeatable")
	flags.StringArrayVar(&f.secrets, "secret", nil, "file for programs in /run/secrets, as `NAME=FILE`, or NAME=env for the value of this process's variable NAME; repeatable")
	flags.StringArrayVar(&f.mounts, "mount", nil, "host file or folder to copy in, as `HOST[:DEST]` and, each behind a comma, include=GLOB, exclude=GLOB, max-bytes=N, follow-symlinks; repeatable")
	flags.StringArrayVar(&f.allowRoots, "allow-root", nil, "with it, every mount must lie under one of these folders, a `DIR` each; repeatable")
	flags.BoolVar(&f.rbw, "read-before-write", false, "refuse to change an existing file that the session has not read")
	flags.BoolVar(&f.fsync, "fsync", false, "acknowledge a change of a file tool, a snapshot or a restore only once it is on disk")
	flags.BoolVar(&f.steps, "auto-snapshot", false, "make a step before each call that can change the workspace, for wisbox undo")
	flags.BoolVar(&f.rollback, "rollback-on-failure", false, "a call that fails leaves the workspace as it was before; implies --auto-snapshot")
	flags.BoolVar(&f.strict, "strict", false, "refuse to start where the host doesn't enforce every limit")
	flags.StringVar(&f.userns, "userns", "", "`auto`: user IDs on the host that no other session has, with a rootful Podman (default one range for all)")
	flags.StringVar(&f.seccomp, "seccomp", "", "`FILE` with a seccomp profile in place of wisbox's own; what it allows beyond that is said, and refused with --strict")
	flags.StringVar(&f.isolation, "isolation", os.Getenv("WISBOX_ISOLATION"), "`KIND`: default, or gvisor: programs run on gVisor's kernel, which needs runsc on PATH or in $WISBOX_RUNSC (default $WISBOX_ISOLATION, then default)")
	flags.DurationVar(&f.ttl, "ttl", 0, "end the session this `TIME` after its creation, as 2h (default never)")
	flags.DurationVar(&f.idle, "idle", 0, "end the session this `TIME` after its last use, as 30m (default never)")
}

// refuseFor refuses flags that would do nothing, for a session that is there.
func (f *sessionFlags) refuseFor(session string) (err error) {
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if session != "" && flag.Changed {
			err = usageError{fmt.Errorf("--%s is for a new session; --session %s has what it was created with", flag.Name, session)}
		}
	})
	return err
}

// options turns the flags into session options, naming the flag that is wrong.
func (f *sessionFlags) options() (*wisbox.SessionOptions, error) {
	if err := refuseZero(f.flags, "cpus", "pids", "inodes"); err != nil {
		return nil, err
	}
	if err := checkImage("image", f.image); err != nil {
		return nil, err
	}
	opts := &wisbox.SessionOptions{
		Image: f.image, ReadBeforeWrite: f.rbw, Fsync: f.fsync, AutoSnapshot: f.steps, RollbackOnFailure: f.rollback,
		Strict: f.strict, Isolation: sandbox.Isolation(f.isolation), UserNS: f.userns, TTL: f.ttl, Idle: f.idle,
		Limits: sandbox.Limits{CPUs: f.cpus, PIDs: f.pids, Inodes: f.inodes},
	}
	for _, size := range []struct {
		flag, text string
		into       *int64
	}{{"memory", f.memory, &opts.Limits.Memory}, {"tmp", f.tmp, &opts.Limits.Tmp}, {"disk", f.disk, &opts.Limits.Disk}} {
		if size.text == "" {
			continue
		}
		n, err := units.RAMInBytes(size.text)
		if err != nil || n <= 0 || n == math.MaxInt64 { // what is over it becomes it
			return nil, usageError{fmt.Errorf("--%s is %q; write a size as 512m or 2g", size.flag, size.text)}
		}
		*size.into = n
	}
	env, err := f.environment()
	if err != nil {
		return nil, err
	}
	opts.Env = env
	if opts.Secrets, err = parseSecrets(f.secrets); err != nil {
		return nil, err
	}
	if err := opts.Check(); err != nil {
		return nil, asUsage(named(err, f.flags))
	}
	return opts, f.addMounts(opts)
}

func (f *sessionFlags) environment() (map[string]string, error) {
	env := make(map[string]string, len(f.env))
	for _, pair := range f.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--env is %q; write it as NAME=VALUE", pair)}
		}
		env[name] = value
	}
	return env, nil
}

// isTerminal tells whether w is a terminal: colour and progress go only there.
func isTerminal(w any) bool {
	f, ok := w.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
