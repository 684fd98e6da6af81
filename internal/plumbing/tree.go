package plumbing

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Entry is a file, link or submodule of a commit.
type Entry struct {
	Mode string // e.g. 100644
	Hash string
}

// ModeSubmodule is the mode of an entry that stands for another repository.
const ModeSubmodule = "160000"

// longestPath bounds one entry of a tree, in bytes.
const longestPath = 64 << 10

// Entries returns the entries of a commit's tree for which want returns true, by path from the top.
func (r *Repo) Entries(ctx context.Context, commit string, want func(path, mode string) bool) (map[string]Entry, error) {
	cmd := r.apart(ctx, "ls-tree", "-r", "-z", "--full-tree", commit)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found, err := readEntries(bufio.NewReaderSize(out, longestPath), want)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the repository's commit %s can't be read", commit).Because(err)
	}
	return found, nil
}

func readEntries(in *bufio.Reader, want func(path, mode string) bool) (map[string]Entry, error) {
	found := map[string]Entry{}
	for {
		raw, err := in.ReadSlice(0) // the error of a longer one is bufio.ErrBufferFull
		if errors.Is(err, io.EOF) && len(raw) == 0 {
			return found, nil
		}
		line := string(raw)
		meta, name, ok := strings.Cut(strings.TrimSuffix(line, "\x00"), "\t")
		words := strings.Fields(meta)
		const fields = 3 // mode, type, hash
		if err != nil || !ok || len(words) != fields {
			return nil, errors.Join(errors.New("an entry of a tree can't be read"), err)
		}
		if want(name, words[0]) {
			found[name] = Entry{words[0], words[2]}
		}
	}
}

// Ignored returns the paths that the repository ignores, by the .gitignore files of a commit, whose
// entries are in rules by path, or by its info/exclude. It reads nothing of a working tree.
func (r *Repo) Ignored(ctx context.Context, rules map[string]Entry, paths []string) (map[string]bool, error) {
	tree := filepath.Join(r.own, "tree")
	for name, e := range rules {
		if err := r.layRule(ctx, tree, name, e); err != nil {
			return nil, err
		}
	}
	if err := r.openOwn(); err != nil {
		return nil, err
	}
	cmd := r.apart(ctx, "-c", "core.bare=false", "-c", "core.excludesFile="+filepath.Join(r.common, "info/exclude"), "check-ignore", "-z", "--stdin", "--no-index")
	cmd.Dir = tree
	cmd.Env = append(cmd.Env, "GIT_WORK_TREE="+tree)
	const here = "./" // makes git's pathspecs take the path literally
	var asked strings.Builder
	for _, p := range paths {
		asked.WriteString(here + p + "\x00")
	}
	out, err := output(cmd, []byte(asked.String()))
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 1 {
		err = nil // nothing is ignored
	}
	if err != nil {
		return nil, tool.Errorf(tool.Unavailable, "git can't list the files that the repository ignores: %s", said(err)).Because(err)
	}
	found := map[string]bool{}
	for name := range strings.SplitSeq(string(out), "\x00") {
		found[strings.TrimPrefix(name, here)] = true
	}
	return found, nil
}

const largestRule = 1 << 20 // bytes of a .gitignore

func (r *Repo) layRule(ctx context.Context, tree, name string, e Entry) error {
	if e.Mode == "120000" || !filepath.IsLocal(name) {
		return nil
	}
	size, err := output(r.apart(ctx, "cat-file", "-s", e.Hash), nil)
	n, wrong := strconv.ParseInt(strings.TrimSpace(string(size)), 10, 64)
	if err != nil || wrong != nil || n > largestRule {
		return tool.Errorf(tool.Unavailable, "the repository's %q can't be read, or has more than 1 MiB", name).Because(err)
	}
	text, err := output(r.apart(ctx, "cat-file", "blob", e.Hash), nil)
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the repository's %q can't be read", name).Because(err)
	}
	if err := os.MkdirAll(filepath.Join(tree, path.Dir(name)), dirMode); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, name), text, fileMode)
}
