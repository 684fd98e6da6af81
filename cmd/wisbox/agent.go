package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/plumbing"
	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

type agentOptions struct {
	sessionFlags
	programFlags

	coder    *coder
	path     string // the folder; "" for none
	args     []string
	name     string
	version  string
	prompt   string
	prompted bool // --prompt was given
	keyEnv   string
	apiURL   string
	apply    bool
	branch   string
	keep     bool
	session  string // the session to continue; "" for a new one

	all    *pflag.FlagSet    // of the command
	home   map[string]string // the coder's files, filled
	server *url.URL          // of the API
	turn   *flock.Flock      // held while it works in its session
}

func (a *app) newAgentCmd() *cobra.Command {
	opts := &agentOptions{}
	cmd := &cobra.Command{
		Use:   "agent NAME [PATH] [flags] [-- ARG…]",
		Short: "Run a coding agent (" + strings.Join(coderNames(), ", ") + ") on a copy of a folder",
		Long: `Runs the agent NAME in a new session, on a copy of the folder PATH (default: this one).
It uses this terminal, or with --prompt does one task without you. The first use builds
an image with the agent from npm. Arguments after -- go to the agent.

The agent can reach only its API and the hosts of --allow. wisbox takes the key from
ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or --key-env, and adds it to requests
outside of the sandbox. The agent's own sandbox and questions are off.

At the end wisbox reports changes, connections, denials, limits and next commands on
stderr. It writes to the folder only with --apply. It keeps the session while it has
changes that neither --apply nor --branch took. See docs/agents.md.`,
		Example: `  wisbox agent claude
  wisbox agent codex ./project -p 'Fix the failing test' --allow python
  wisbox agent claude . -p 'Add a test' --branch add-test -- --model opus
  wisbox agent opencode --api-url http://localhost:11434/v1 --allow host:11434`,
		Args: opts.take,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.prompted = cmd.Flags().Changed("prompt")
			return a.runAgent(cmd.Context(), opts)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return coderNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	opts.register(cmd.Flags())
	return cmd
}

func (o *agentOptions) register(flags *pflag.FlagSet) {
	o.all = flags
	o.sessionFlags.register(flags)
	o.undoByDefault()
	markRare(o.sessionFlags.flags, "allow", "mount")
	o.programFlags.register(flags)
	flags.StringVar(&o.name, "name", "", "`NAME` of the session (default: the agent's, with a number if that exists)")
	flags.StringVarP(&o.prompt, "prompt", "p", "", "`TEXT` of a task that the agent does without you (default: it uses this terminal)")
	flags.StringVar(&o.version, "agent-version", "", "`VERSION` of the agent in npm's registry, e.g. 1.2.3 (default: the tested one)")
	flags.StringVar(&o.keyEnv, "key-env", "", "`NAME` of the variable with the API's key (default: the agent's own)")
	flags.StringVar(&o.apiURL, "api-url", "", "base `URL` of the API, https://…, or http://localhost:PORT, which needs --allow host:PORT and gets no key (default: the maker's)")
	flags.BoolVar(&o.apply, "apply", false, "write the changes to PATH at the end")
	flags.StringVar(&o.branch, "branch", "", "commit the changes to a new git branch `NAME` at the end")
	flags.StringVar(&o.session, "session", "", "continue in the session `NAME` that wisbox agent kept")
	flags.BoolVar(&o.keep, "keep", false, "always keep the session")
}

// take reads the arguments: the agent, the folder, and the agent's own arguments behind --.
func (o *agentOptions) take(cmd *cobra.Command, args []string) (err error) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		args, o.args = args[:at], args[at:]
	}
	if err := exactArgs("NAME", "[PATH]")(cmd, args); err != nil {
		return err
	}
	if o.coder, err = coderOf(args[0]); err != nil {
		return err
	}
	if len(args) == 2 {
		if o.path = args[1]; o.path == "" {
			return usageError{errors.New("PATH is empty; leave it out for this folder")}
		}
	}
	return nil
}

func (o *agentOptions) check(a *app) error {
	if o.version == "" {
		o.version = o.coder.version
	}
	switch {
	case !exactVersion().MatchString(o.version):
		return usageError{fmt.Errorf("--agent-version is %q; write one version, as %s", o.version, o.coder.version)}
	case o.prompted && strings.TrimSpace(o.prompt) == "":
		return usageError{errors.New("--prompt is empty; give the agent's task")}
	case o.prompt == "" && a.json:
		return usageError{errors.New("--json can't report the output of an agent that runs at the terminal; give --prompt too")}
	case o.prompt == "" && !a.atTerminal():
		return usageError{errors.New("the agent needs a terminal; run it at one, or give its task with --prompt")}
	case o.apply && o.branch != "":
		return usageError{errors.New("--apply and --branch exclude each other; give one of the two")}
	case o.session != "" && o.path != "":
		return usageError{errors.New("PATH is copied into a new session, and --session has its files; give one of the two")}
	case o.session != "" && (o.name != "" || o.all.Changed("agent-version")):
		return usageError{errors.New("--name and --agent-version are for a new session; --session has what it was created with")}
	}
	if err := o.refuseFor(o.session); err != nil {
		return err
	}
	return o.programFlags.check()
}

func (a *app) runAgent(ctx context.Context, o *agentOptions) error {
	if err := o.check(a); err != nil {
		return err
	}
	if o.session != "" {
		return a.engineError(ctx, a.runAgentAgain(ctx, o))
	}
	so, err := a.agentSession(o)
	if err == nil {
		err = o.checkBranch(ctx, so)
	}
	if err == nil {
		err = a.runAgentIn(ctx, o, so)
	}
	return a.engineError(ctx, err)
}

func (a *app) runAgentIn(ctx context.Context, o *agentOptions, so *wisbox.SessionOptions) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if so.Image == "" && so.Template == "" && o.build == "" {
		if so.Image, err = a.agentImage(ctx, m, o); err != nil {
			return err
		}
	}
	s, err := a.openAgent(ctx, m, o, so)
	if err != nil {
		return err
	}
	if err := o.takeTurn(a.cache, s.ID()); err != nil {
		return errors.Join(err, a.closeSession(ctx, s))
	}
	r := &agentReport{Agent: o.coder.name, Session: s.ID()}
	ran := a.runCoder(ctx, s, o, r)
	return a.finishAgent(ctx, m, s, o, r, ran)
}

// runAgentAgain runs the agent in a session of an earlier run. The session stays.
func (a *app) runAgentAgain(ctx context.Context, o *agentOptions) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Attach(ctx, o.session)
	if err != nil {
		return asUsage(err)
	}
	was := s.Options()
	secrets, err := o.reachAgain(&was)
	if err == nil {
		err = o.checkBranch(ctx, &was)
	}
	if err == nil {
		err = o.takeTurn(a.cache, s.ID())
	}
	if err == nil {
		err = s.SetSecrets(ctx, secrets)
	}
	if err != nil {
		return errors.Join(err, a.closeSession(ctx, s))
	}
	o.keep = true
	r := &agentReport{Agent: o.coder.name, Session: s.ID()}
	return a.finishAgent(ctx, m, s, o, r, a.runCoder(ctx, s, o, r))
}

// takeTurn keeps other runs of wisbox agent out of a session until this process ends: the first run
// to end would stop the other's programs.
func (o *agentOptions) takeTurn(cache, id string) error {
	if cache == "" {
		var err error
		if cache, err = overlay.DefaultRoot(); err != nil {
			return err
		}
	}
	dir := filepath.Join(cache, "agents")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hostError(err)
	}
	o.turn = flock.New(filepath.Join(dir, id+".lock"), flock.SetPermissions(0o600))
	taken, err := o.turn.TryLock()
	if err == nil && !taken {
		return tool.Errorf(tool.Busy, "another wisbox agent works in the session %s; wait until it has ended", id).In("session")
	}
	return hostError(err)
}

// reachAgain returns the key for a session whose rules already allow the API.
func (o *agentOptions) reachAgain(was *wisbox.SessionOptions) (map[string]wisbox.Secret, error) {
	now := &wisbox.SessionOptions{Allow: slices.Clone(was.Allow), Env: maps.Clone(was.Env)}
	if err := o.reachAPI(now); err != nil {
		return nil, err
	}
	if was.Env[agentMark] != now.Env[agentMark] {
		return nil, tool.Errorf(tool.Conflict, "the session %s was not created by wisbox agent for %s; start a new one without --session", o.session, now.Env[agentMark]).In("session")
	}
	for _, rule := range now.Inject {
		if !slices.Contains(was.Inject, rule) {
			return nil, tool.Errorf(tool.Conflict, "the session %s has no rule that brings this key to this API, so it was not created by wisbox agent %s with them; start a new one without --session", o.session, o.coder.name).In("session")
		}
	}
	return now.Secrets, nil
}

// checkBranch checks, before the agent works, that its branch can be created afterwards.
func (o *agentOptions) checkBranch(ctx context.Context, so *wisbox.SessionOptions) error {
	if o.branch == "" || len(so.Mounts) == 0 {
		return nil
	}
	repo, err := plumbing.Open(ctx, so.Mounts[len(so.Mounts)-1].HostPath)
	if err != nil {
		return err
	}
	defer repo.Close()
	if err := repo.CheckBranch(ctx, o.branch); err != nil {
		return asUsage(err)
	}
	_, err = repo.Resolve(ctx, "HEAD")
	return err
}

// Limits of a session for which neither flags nor files set any: the programs are large and start
// others.
const (
	agentCPUs   = 2
	agentMemory = 4 << 30 // bytes
	agentTmp    = 1 << 30 // bytes; the agent's home is there
	agentPIDs   = 1024
)

// agentSession returns the options of the agent's session.
func (a *app) agentSession(o *agentOptions) (*wisbox.SessionOptions, error) {
	so, err := a.sessionOptions(&o.sessionFlags)
	if err != nil {
		return nil, err
	}
	so.Kept, so.Name = true, o.name
	if so.Limits.CPUs == 0 {
		so.Limits.CPUs = float64(min(agentCPUs, runtime.NumCPU()))
	}
	if so.Limits.PIDs == 0 {
		so.Limits.PIDs = agentPIDs
	}
	if so.Limits.Memory == 0 {
		so.Limits.Memory = agentMemory
		if so.Limits.Tmp == 0 {
			so.Limits.Tmp = agentTmp
		}
	}
	if err := o.mountFolder(so); err != nil {
		return nil, err
	}
	if err := o.reachAPI(so); err != nil {
		return nil, err
	}
	if err := so.Check(); err != nil {
		return nil, asUsage(named(err, o.all))
	}
	return so, nil
}

// mountFolder mounts PATH. Without a PATH it mounts the working directory, unless flags or files
// set the mounts.
func (o *agentOptions) mountFolder(so *wisbox.SessionOptions) error {
	if o.path == "" {
		if len(so.Mounts) > 0 {
			return nil
		}
		o.path = "."
	}
	path, err := filepath.Abs(o.path)
	if err != nil {
		return tool.Errorf(tool.Invalid, "PATH can't be made absolute").Because(err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return asUsage(hostError(err))
	case !info.IsDir():
		return usageError{fmt.Errorf("PATH %q is a file; name a folder", o.path)}
	}
	so.Mounts = append(so.Mounts, hostmount.Mount{HostPath: path, MountPath: ".", GitFolders: len(o.allowRoots) == 0})
	o.mounts = append(o.mounts, o.path)
	if len(o.allowRoots) == 0 {
		so.AllowedRoots = append(so.AllowedRoots, path)
	}
	return nil
}

// reachAPI allows the API, with the key, and gives the agent its address.
func (o *agentOptions) reachAPI(so *wisbox.SessionOptions) error {
	api := o.api()
	at, err := o.apiAt(api)
	if err != nil {
		return err
	}
	o.server = at
	keys := o.keys()
	key := "wisbox-no-key"
	if at.Hostname() == policy.ThisMachine {
		if rule := "host:" + at.Port(); !slices.Contains(so.Allow, rule) {
			return usageError{fmt.Errorf("--api-url %s is a port of this machine, which is not allowed; add --allow %s", o.apiURL, rule)}
		}
		setDefault(&so.Env, api.key, key)
	} else if key, err = o.injectKey(so, api, at); err != nil {
		return err
	}
	if err := keepOut(so, keys, key); err != nil {
		return err
	}
	for name, text := range o.coder.env {
		setDefault(&so.Env, name, filled(text, at.String(), key))
	}
	setDefault(&so.Env, agentMark, "")
	so.Env[agentMark] = o.coder.name + " " + at.String()
	o.home = map[string]string{}
	for path, text := range o.coder.files {
		o.home[path] = filled(text, at.String(), key)
	}
	return nil
}

// keys returns the variables that may hold a key of the agent, with their values in this process.
func (o *agentOptions) keys() map[string]string {
	keys := map[string]string{}
	for _, api := range o.coder.apis {
		keys[api.key] = os.Getenv(api.key)
	}
	if o.keyEnv != "" {
		keys[o.keyEnv] = os.Getenv(o.keyEnv)
	}
	return keys
}

// keepOut refuses variables and secrets that would give a key to programs of the session.
func keepOut(so *wisbox.SessionOptions, keys map[string]string, placeholder string) error {
	isKey := func(name, value string) bool {
		if _, is := keys[name]; is && value != placeholder {
			return true
		}
		for _, key := range keys {
			if len(key) >= shortestKey && strings.Contains(value, key) {
				return true
			}
		}
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(so.Env)) {
		if isKey(name, so.Env[name]) {
			return usageError{fmt.Errorf("the variable %s would bring an API key into the session; remove --env %[1]s, or its line in --env-file: wisbox adds the key outside of the sandbox", name)}
		}
	}
	hidden := door.Rules{Settings: policy.Settings{Inject: so.Inject}}.Secrets()
	for _, name := range slices.Sorted(maps.Keys(so.Secrets)) {
		if !slices.Contains(hidden, name) && isKey(name, string(so.Secrets[name].Value)) {
			return usageError{fmt.Errorf("the secret %s would bring an API key into the session; remove --secret %[1]s: wisbox adds the key outside of the sandbox", name)}
		}
	}
	return nil
}

func setDefault(env *map[string]string, name, value string) {
	if *env == nil {
		*env = map[string]string{}
	}
	if _, given := (*env)[name]; !given {
		(*env)[name] = value
	}
}

// api returns the first API whose key is set, by default the agent's first one.
func (o *agentOptions) api() coderAPI {
	for _, api := range o.coder.apis {
		if _, set := os.LookupEnv(api.key); o.keyEnv == api.key || o.keyEnv == "" && set {
			return api
		}
	}
	return o.coder.apis[0]
}

// apiAt returns the base URL of an API as programs of the session write it.
func (o *agentOptions) apiAt(api coderAPI) (*url.URL, error) {
	text := cmp.Or(o.apiURL, api.url)
	bad := func(problem string) (*url.URL, error) {
		return nil, usageError{fmt.Errorf("--api-url is %q: %s", text, problem)}
	}
	at, err := url.Parse(text)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http":
		return bad("it is not a URL; write https://HOST, or http://localhost:PORT for a server of this machine")
	case at.User != nil || at.RawQuery != "" || at.Fragment != "":
		return bad("only a path may follow the host; give a key with --key-env")
	}
	name, ip := strings.ToLower(at.Hostname()), net.ParseIP(at.Hostname())
	ours := name == "localhost" || name == policy.ThisMachine || ip != nil && ip.IsLoopback()
	switch {
	case ours && (at.Scheme != "http" || at.Port() == ""):
		return bad("a server of this machine is reached without TLS; write http://localhost:PORT")
	case ours:
		at.Host = policy.ThisMachine + ":" + at.Port()
	case at.Scheme != "https":
		return bad("the key is sent over TLS only; write https://HOST")
	}
	return at, nil
}

// shortestKey is the smallest number of bytes of a secret that wisbox can redact.
const shortestKey = 8

// injectKey makes the proxy outside of the sandbox add the key to requests to the API, and returns
// the placeholder that stands for the key inside.
func (o *agentOptions) injectKey(so *wisbox.SessionOptions, api coderAPI, at *url.URL) (placeholder string, err error) {
	name := cmp.Or(o.keyEnv, api.key)
	switch value := os.Getenv(name); {
	case value != "" && len(value) < shortestKey:
		return "", usageError{fmt.Errorf("the variable %s is too short for an API key; set it to your key for %s", name, at.Host)}
	case value == "":
		return "", tool.Errorf(tool.NotFound, "no API key: the variable %s is not set; set it to your key for %s, or give --key-env the name of another variable", name, at.Host).In("key-env")
	}
	secrets, err := parseSecrets([]string{name + "=" + fromEnv})
	if err != nil {
		return "", err
	}
	maps.Copy(secrets, so.Secrets)
	so.Secrets = secrets
	so.Allow = append(so.Allow, at.Hostname()+":"+cmp.Or(at.Port(), "443"))
	rule := policy.Injection{Host: at.Hostname(), Header: api.header, Scheme: api.scheme, Secret: name, Env: api.key, Alone: true}
	if rule.Access.Prefix = strings.TrimSuffix(at.Path, "/"); rule.Access.Prefix == "" && strings.HasSuffix(api.url, "//"+at.Host) {
		rule.Access.Prefix = api.path
	}
	so.Inject = append(so.Inject, rule.String())
	return rule.Placeholder(), nil
}

// agentImage returns the image of the agent, and builds it if it doesn't exist.
func (a *app) agentImage(ctx context.Context, m *wisbox.Manager, o *agentOptions) (string, error) {
	b, ok := m.Backend().(images.Builder)
	if !ok {
		return "", tool.Errorf(tool.Unsupported, "this backend has no images")
	}
	under := images.PresetName([]string{"node"})
	tag := fmt.Sprintf("localhost/wisbox-agent:%s-%s-%s", o.coder.name, o.version, under[strings.LastIndexByte(under, '-')+1:])
	if _, err := b.ImageInfo(ctx, tag); err == nil || !errors.Is(err, sandbox.ErrNotFound) {
		return tag, toolerr.Of(err)
	}
	fmt.Fprintf(a.err, "wisbox: building the image of %s %s, once\n", o.coder.name, o.version)
	if err := a.watched(func(say func(string)) error {
		_, err := images.BuildPreset(ctx, b, &images.PresetOptions{With: []string{"node"}, Progress: say})
		return err
	}); err != nil {
		return "", buildError(err)
	}
	dir, err := scratch.New("wisbox-agent-")
	if err != nil {
		return "", tool.Errorf(tool.Unavailable, "no room for the files of the image; set TMPDIR to a directory with room").Because(err)
	}
	defer dir.Close()
	files := map[string][]byte{"Containerfile": []byte(o.coder.containerfile(under, o.version)), rootsFile: door.HostRoots()}
	if manifest, lock := o.coder.lock(o.version); lock != nil {
		files["Containerfile"], files["package.json"], files["package-lock.json"] = []byte(o.coder.lockedFile(under)), manifest, lock
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir.Path, name), content, 0o600); err != nil {
			return "", hostError(err)
		}
	}
	if _, err = a.buildFile(ctx, b, &images.FileOptions{Context: dir.Path, Tag: tag, Own: true}); err != nil {
		return "", tool.Errorf(tool.Unavailable, "building the image of %s %s: %s; read the lines above, and check that this machine reaches npm's registry", o.coder.name, o.version, tool.AsError(buildError(err)).Message).Because(err)
	}
	return tag, nil
}

// openAgent opens the session. Unless a flag names the session, it gets the first free name.
func (a *app) openAgent(ctx context.Context, m *wisbox.Manager, o *agentOptions, so *wisbox.SessionOptions) (*wisbox.Session, error) {
	for n := 1; ; n++ {
		if o.name == "" {
			so.Name = o.coder.name
			if n > 1 {
				so.Name = fmt.Sprintf("%s-%d", o.coder.name, n)
			}
		}
		s, err := a.open(ctx, m, &o.sessionFlags, so)
		if taken := tool.KindOf(err) == tool.Exists && tool.AsError(err).Field == "session"; !taken || o.name != "" {
			return s, err
		}
	}
}

// agentMark is a variable of sessions that wisbox agent creates: it names their agent and API. A
// later run continues only a session with the same mark.
const agentMark = "WISBOX_AGENT"

// runCoder runs the agent until it ends.
func (a *app) runCoder(ctx context.Context, s *wisbox.Session, o *agentOptions, r *agentReport) error {
	for name, text := range o.home {
		opts := sandbox.WriteOptions{Mode: 0o600, Parents: true}
		if err := s.Inside().Write(ctx, path.Join(sandbox.Home, name), strings.NewReader(text), opts); err != nil {
			return toolerr.Of(err)
		}
	}
	o.reported = true
	r.Began, r.server = time.Now(), o.server
	argv := o.coder.argv(o.prompt, o.args)
	if o.prompt == "" {
		return a.runTerminal(ctx, s, &o.programFlags, argv)
	}
	res, err := a.resultOf(ctx, s, o.programFlags, argv)
	r.Program = res
	return err
}
