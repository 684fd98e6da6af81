// Package plumbing writes objects and a branch into a git repository of the host, with
// git's plumbing commands.
//
// It is for untrusted content. It writes objects in a separate git directory, which has only the
// format and borrows the repository's objects. So no configuration, attribute, hook, index or working
// tree of the repository takes effect. In the repository itself it only reads names and creates one
// ref, with hooks off. It checks nothing out, and no transport may run.
package plumbing

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's name of a blob
	"crypto/sha256"
	"errors"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/tool"
)

// Repo is a repository of the host. Its methods are for one goroutine at a time.
type Repo struct {
	at     string // the opened directory
	Prefix string // the opened directory relative to the top of the working tree, "" or "a/b/"
	dir    string // the git directory; for a linked worktree its own
	common string // the directory of objects and branches
	format string // sha1 or sha256
	own    string // the empty git directory
	made   *scratch.Dir
	runAs  *syscall.Credential
	who    identity
}

type identity struct{ name, mail string }

// Open finds the repository whose working tree contains a directory of the host. If there is none,
// the error is not_found. Close it when done.
func Open(ctx context.Context, at string) (*Repo, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, tool.Errorf(tool.Unsupported, "git isn't installed on the host; install it, or use wisbox diff --patch").Because(err)
	}
	r := &Repo{at: at}
	if err := r.actAsOwner(at); err != nil {
		return nil, err
	}
	out, err := r.run(ctx, []string{"-C", at, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-object-format", "--show-prefix"})
	if err != nil {
		return nil, tool.Errorf(tool.NotFound, "the mounted folder is not in a git repository that can be used: %s", said(err)).Because(err)
	}
	lines := strings.SplitN(string(out), "\n", 4)
	const want = 4
	if len(lines) < want {
		return nil, tool.Errorf(tool.Unsupported, "the host's git is too old; install version 2.31 or later for wisbox branch")
	}
	r.dir, r.common, r.format, r.Prefix = lines[0], lines[1], lines[2], strings.TrimSuffix(lines[3], "\n")
	r.who = r.identify(ctx)
	return r, r.makeOwn()
}

// actAsOwner makes git run as the owner of the folder if this process is root, so that the owner
// gets the files written in the repository.
func (r *Repo) actAsOwner(at string) error {
	info, err := os.Stat(at)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && os.Geteuid() == 0 && st.Uid != 0 {
		r.runAs = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
	}
	return nil
}

func (r *Repo) makeOwn() error {
	made, err := scratch.New("wisbox-branch-")
	if err != nil {
		return tool.Errorf(tool.Unavailable, "no room for git's own files; set TMPDIR to a directory with room").Because(err)
	}
	r.made, r.own = made, made.Path
	own := r.own
	config := "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = " + r.format + "\n"
	for _, dir := range []string{"refs", "refs/heads", "objects", "tree"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(own, dir), dirMode))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(own, "HEAD"), []byte("ref: refs/heads/none\n"), fileMode),
		os.WriteFile(filepath.Join(own, "config"), []byte(config), fileMode), r.giveRefs(), r.openOwn())
	if err != nil {
		r.Close()
	}
	return err
}

// Modes of our directory: git's user may read it; others can't enter it or guess its name.
const (
	dirMode  = 0o755
	fileMode = 0o644
)

// giveRefs gives git's user the directory for the new ref, once: after that its content may be
// anything. Everything else stays with this process, which writes there and must not be led
// elsewhere.
func (r *Repo) giveRefs() (err error) {
	if r.runAs == nil {
		return nil
	}
	for _, dir := range []string{"refs/heads", "refs"} {
		err = errors.Join(err, os.Lchown(filepath.Join(r.own, dir), int(r.runAs.Uid), int(r.runAs.Gid)))
	}
	return err
}

// openOwn lets that user read the rest.
func (r *Repo) openOwn() error {
	if r.runAs == nil {
		return nil
	}
	const enter = 0o711
	refs := filepath.Join(r.own, "refs")
	return filepath.WalkDir(r.own, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == r.own:
			return os.Chmod(path, enter)
		case path == refs:
			return filepath.SkipDir
		case e.IsDir():
			return os.Chmod(path, dirMode)
		}
		return os.Chmod(path, fileMode)
	})
}

// Close removes the files made beside the repository.
func (r *Repo) Close() { _ = r.made.Close() }

// Same reports whether both are the same repository and working tree.
func (r *Repo) Same(o *Repo) bool { return r.dir == o.dir }

// BlobHash returns the hash function of the repository's object names.
func (r *Repo) BlobHash() hash.Hash {
	if r.format == "sha256" {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // git's name of a blob
}

// quiet turns off settings that could run something, or change the written content.
var quiet = []string{
	"--no-pager", "--no-replace-objects",
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null",
	"-c", "core.alternateRefsCommand=", "-c", "protocol.allow=never", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.quotePath=true",
}

// environment returns git's whole environment.
func (r *Repo) environment(more ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=", "GIT_NO_LAZY_FETCH=1",
		"GIT_COMMITTER_NAME=" + r.who.name, "GIT_COMMITTER_EMAIL=" + r.who.mail, "GIT_AUTHOR_NAME=" + r.who.name, "GIT_AUTHOR_EMAIL=" + r.who.mail,
	}
	return append(env, more...)
}

// command returns git on the repository itself, for names.
func (r *Repo) command(ctx context.Context, args []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", slices.Concat(quiet, args)...)
	cmd.Dir, cmd.Env = "/", r.environment(env...)
	if r.runAs != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.runAs}
	}
	return cmd
}

func (r *Repo) inRepository() string { return "GIT_DIR=" + r.dir }

// apart returns git on our own directory and the repository's objects.
func (r *Repo) apart(ctx context.Context, args ...string) *exec.Cmd {
	return r.command(ctx, args, "GIT_DIR="+r.own, "GIT_OBJECT_DIRECTORY="+filepath.Join(r.common, "objects"))
}

func (r *Repo) run(ctx context.Context, args []string, env ...string) ([]byte, error) {
	return output(r.command(ctx, args, env...), nil)
}

func output(cmd *exec.Cmd, in []byte) ([]byte, error) {
	cmd.Stdin = bytes.NewReader(in)
	return cmd.Output()
}

// said returns git's message of an error, for a person.
func said(err error) string {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return "git can't be run"
	}
	const most = 300 // bytes
	text := strings.TrimPrefix(strings.TrimSpace(string(ended.Stderr)), "fatal: ")
	return strings.Join(strings.Fields(text[:min(len(text), most)]), " ")
}

// identify returns the author of the repository's commits: by its own settings, then the user's.
func (r *Repo) identify(ctx context.Context) identity {
	who := identity{"wisbox", "wisbox@localhost"}
	for key, into := range map[string]*string{"user.name": &who.name, "user.email": &who.mail} {
		if text := strings.TrimSpace(r.setting(ctx, "--get", key)); text != "" && !strings.ContainsAny(text, "<>\n\x00") {
			*into = text
		}
	}
	return who
}

// setting returns the output of git config with args, from the repository's and the user's own
// settings; "" if there is none.
func (r *Repo) setting(ctx context.Context, args ...string) string {
	env := []string{r.inRepository()}
	if r.runAs == nil {
		env = append(env, "HOME="+os.Getenv("HOME"), "XDG_CONFIG_HOME="+os.Getenv("XDG_CONFIG_HOME"))
	}
	cmd := r.command(ctx, append([]string{"config"}, args...), env...)
	if r.runAs == nil {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(line string) bool { return line == "GIT_CONFIG_GLOBAL=/dev/null" })
	}
	out, err := output(cmd, nil)
	if err != nil {
		return ""
	}
	return string(out)
}

// HookFolders returns the folders and files below the opened directory that git runs as hooks:
// those named by core.hooksPath, and targets of links in the folder of hooks. "." means the opened
// directory, or one above it.
func (r *Repo) HookFolders(ctx context.Context) (folders []string) {
	at, err := filepath.EvalSymlinks(r.at)
	if err != nil {
		return nil
	}
	top := strings.TrimSuffix(at+"/", r.Prefix)
	add := func(name string) {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			name = real
		}
		rel, err := filepath.Rel(at, name)
		switch {
		case err != nil || strings.Contains("/"+rel+"/", "/.git/"): // git's own directory, to which nothing is brought home
		case filepath.IsLocal(rel):
			folders = append(folders, rel)
		case strings.Trim(rel, "./") == "": // at is inside
			folders = append(folders, ".")
		}
	}
	for _, dir := range r.hookPaths(ctx) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(top, dir)
		}
		add(dir)
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Type()&os.ModeSymlink != 0 {
				add(filepath.Join(dir, e.Name()))
			}
		}
	}
	return folders
}

// hookPaths returns the folders in which git looks for hooks.
func (r *Repo) hookPaths(ctx context.Context) (dirs []string) {
	for dir := range strings.SplitSeq(r.setting(ctx, "--type=path", "--null", "--get-all", "core.hooksPath"), "\x00") {
		if dir != "" && dir != os.DevNull { // os.DevNull is our own setting
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) > 0 {
		return dirs
	}
	out, err := r.run(ctx, []string{"rev-parse", "--path-format=absolute", "--git-common-dir"}, r.inRepository())
	if err != nil {
		return nil
	}
	return []string{filepath.Join(strings.TrimSpace(string(out)), "hooks")}
}

// Resolve returns the commit of a name such as HEAD or main.
func (r *Repo) Resolve(ctx context.Context, name string) (string, error) {
	out, err := r.run(ctx, []string{"rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"}, r.inRepository())
	if err != nil {
		return "", tool.Errorf(tool.NotFound, "the repository has no commit %q; commit once, or name another one with --from", name).In("from").Because(err)
	}
	return strings.TrimSpace(string(out)), nil
}

// CheckBranch refuses a name that is invalid or taken.
func (r *Repo) CheckBranch(ctx context.Context, name string) error {
	if _, err := r.run(ctx, []string{"check-ref-format", "refs/heads/" + name}); err != nil || strings.HasPrefix(name, "-") {
		return tool.Errorf(tool.Invalid, "%q can't be the name of a branch; see: git help check-ref-format", name).In("branch")
	}
	if _, err := r.run(ctx, []string{"show-ref", "--verify", "--quiet", "refs/heads/" + name}, r.inRepository()); err == nil {
		return tool.Errorf(tool.Exists, "the branch %s already exists; give another name, or delete it with git branch -D", name).In("branch")
	}
	return nil
}

// CreateBranch creates a branch that doesn't exist.
func (r *Repo) CreateBranch(ctx context.Context, name, commit string) error {
	zero := strings.Repeat("0", len(commit))
	_, err := r.run(ctx, []string{"update-ref", "-m", "wisbox branch", "refs/heads/" + name, commit, zero}, r.inRepository())
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the branch %s can't be made: %s", name, said(err)).Because(err)
	}
	return nil
}
