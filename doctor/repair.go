package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// check reports a check's result, after a repair if Fix is set and wisbox has one.
func (e *examination) check(ctx context.Context, look func() Line) Line {
	l := look()
	repair := e.repairs()[l.Name]
	if !e.opts.Fix || l.Fix == "" || repair == nil {
		return l
	}
	err := repair(ctx)
	if errors.Is(err, fs.ErrPermission) {
		l.Detail += "; repairing it needs root: sudo wisbox doctor --fix"
		return l
	}
	if err != nil {
		l.Detail += "; it could not be repaired: " + text(err)
		return l
	}
	if l = look(); l.Status == OK {
		l.Detail = "repaired: " + l.Detail
	}
	return l
}

// repairs returns the repairs, which take nothing from anybody: they install no package, and change
// and remove nothing of others.
func (e *examination) repairs() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"image":           func(ctx context.Context) error { return e.host.BuildImage(ctx) },
		"leftovers":       func(ctx context.Context) error { return e.host.Prune(ctx) },
		"subuid":          func(context.Context) error { return e.giveRange("/etc/subuid") },
		"subgid":          func(context.Context) error { return e.giveRange("/etc/subgid") },
		"user namespaces": func(context.Context) error { return e.allowNamespaces() },
	}
}

// firstSubordinate is the first id that shadow's own tools assign.
const firstSubordinate = 100_000

// giveRange gives the user unused ids, as usermod --add-subuids does.
func (e *examination) giveRange(path string) error {
	f, err := os.OpenFile(filepath.Join(e.opts.Root, path), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	newline := ""
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		newline = "\n"
	}
	_, err = fmt.Fprintf(f, "%s%s:%d:%d\n", newline, patient().Username, freeFrom(string(raw)), fewIDs)
	return errors.Join(err, f.Sync())
}

// freeFrom returns the first id above all that a file of subordinate ids assigns.
func freeFrom(file string) int64 {
	free := int64(firstSubordinate)
	for line := range strings.Lines(file) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 {
			continue
		}
		start, err1 := strconv.ParseInt(f[1], 10, 64)
		count, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil {
			free = max(free, start+count)
		}
	}
	return free
}

// allowNamespaces changes settings that forbid user namespaces, now and for the next boot.
func (e *examination) allowNamespaces() error {
	for _, s := range switches {
		path := filepath.Join(e.opts.Root, "proc/sys", s.file)
		raw, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(raw)) != s.forbids {
			continue
		}
		if err := os.WriteFile(path, []byte(s.allows+"\n"), 0o644); err != nil {
			return err
		}
		conf := filepath.Join(e.opts.Root, "etc/sysctl.d/60-wisbox-"+filepath.Base(s.file)+".conf")
		line := strings.ReplaceAll(s.file, "/", ".") + " = " + s.allows + "\n"
		if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte(line), 0o644)); err != nil {
			return err
		}
	}
	return nil
}
