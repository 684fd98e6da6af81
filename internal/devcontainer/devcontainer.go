// Package devcontainer reads a session's settings from a project's devcontainer.json.
// The file isn't trusted: it can't name anything outside of the project's folder, and
// gets no variables of this machine.
//
// The format: https://containers.dev/implementors/json_reference/.
package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/jsonc"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Workspace is where the project's folder is in a session.
const Workspace = "/workspace"

const maxSize = 1 << 20 // bytes of the file

// places are the possible paths of the file in the project's folder; the first one that exists is
// used.
var places = []string{".devcontainer/devcontainer.json", ".devcontainer.json"}

// File is the part of a devcontainer.json that wisbox uses.
type File struct {
	Path  string // of the file, relative to the project's folder
	Image string // "" if Build is set, or if the file has neither
	Build *Build // nil if there is an image, or neither
	// Env is for every program. Its values and those of Commands may have ${containerEnv:NAME} and
	// ${containerEnv:NAME:default}, for variables that the image sets.
	Env map[string]string
	// Mounts are folders and files of the project that are mounted at other places of the
	// workspace.
	Mounts []Mount
	// Commands prepare the session, in this order.
	Commands []Command
	// Unused are the names of properties that wisbox ignores, sorted.
	Unused []string
}

// Build describes how to build the image. Both paths are relative to the project's folder.
type Build struct {
	File, Context string
	Args          map[string]string
}

// Mount is a part of the project.
type Mount struct{ Source, Dest string } // below the project's folder, below the workspace

// Command is one step.
type Command struct {
	Name string // postCreateCommand, or with the name of one of its parts
	Argv []string
}

// content is the form of the file.
type content struct {
	Image, Dockerfile, Context   string
	Build                        json.RawMessage
	Container                    map[string]string
	Remote                       map[string]*string
	Mounts                       []json.RawMessage
	OnCreate, Update, PostCreate json.RawMessage
}

// Read reads the file of the project in dir. Its errors are [*tool.Error]s: NotFound if there is
// none, Invalid if it can't be used.
func Read(dir string) (*File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tool.Errorf(tool.NotFound, "%s is not a folder that can be read; name a project's", dir).In("devcontainer").Because(err)
	}
	defer root.Close()
	for _, name := range places {
		raw, err := read(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, tool.Errorf(tool.Invalid, "%s can't be read as a file of at most %d bytes", name, maxSize).In("devcontainer").Because(err)
		}
		f, err := parse(name, filepath.Base(dir), raw)
		if err != nil {
			return nil, err
		}
		return f, f.isIn(root)
	}
	return nil, tool.Errorf(tool.NotFound, "%s has no %s; write one, or leave --devcontainer out", dir, strings.Join(places, " and no ")).In("devcontainer")
}

// isIn refuses a path outside of the project's folder, also through a link.
func (f *File) isIn(root *os.Root) error {
	outside := func(part string, err error) error {
		return tool.Errorf(tool.Invalid, "%s names %s, which is not in the project's folder, or is of the wrong kind (file or folder); change the file, or leave --devcontainer out", f.Path, part).In("devcontainer").Because(err)
	}
	if f.Build != nil {
		if info, err := root.Stat(f.Build.File); err != nil || !info.Mode().IsRegular() {
			return outside(f.Build.File, err)
		}
		if info, err := root.Stat(f.Build.Context); err != nil || !info.IsDir() {
			return outside(f.Build.Context, err)
		}
	}
	for _, m := range f.Mounts {
		if _, err := root.Stat(m.Source); err != nil {
			return outside(m.Source, err)
		}
	}
	return nil
}

func read(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // so that a FIFO doesn't block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(raw) > maxSize {
		err = errors.New("too large")
	}
	return raw, err
}

// parser converts one file.
type parser struct {
	path, base string
	unused     map[string]bool
	own        map[string]string // containerEnv, once it is read
	out        *File
}

func parse(name, base string, raw []byte) (*File, error) {
	p := &parser{path: name, base: base, unused: map[string]bool{}, out: &File{Path: name, Env: map[string]string{}}}
	var c content
	err := p.object(jsonc.ToJSON(bytes.TrimPrefix(raw, []byte("\ufeff"))), "", map[string]any{
		"image": &c.Image, "dockerFile": &c.Dockerfile, "context": &c.Context, "build": &c.Build,
		"containerEnv": &c.Container, "remoteEnv": &c.Remote, "mounts": &c.Mounts,
		"onCreateCommand": &c.OnCreate, "updateContentCommand": &c.Update, "postCreateCommand": &c.PostCreate,
		"$schema": nil, "name": nil, "customizations": nil, "workspaceFolder": nil, // they don't concern a session
	})
	if err != nil {
		return nil, err
	}
	for _, part := range []func(*content) error{p.image, p.environment, p.mounts, p.commands} {
		if err := part(&c); err != nil {
			return nil, err
		}
	}
	p.out.Unused = slices.Sorted(maps.Keys(p.unused))
	return p.out, nil
}

func (p *parser) invalid(err error, format string, args ...any) error {
	return tool.Errorf(tool.Invalid, p.path+": "+format+"; change the file, or leave --devcontainer out", args...).In("devcontainer").Because(err)
}

// object stores the properties of an object in places by their exact names; others are unused. A
// repeated name is refused, since one reader would take the first value and another the last.
func (p *parser) object(text []byte, within string, places map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return p.invalid(err, "%s is not an object of JSON with comments", first(strings.TrimSuffix(within, "."), "it"))
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		switch {
		case err != nil || !ok:
			return p.invalid(err, "it is not an object of JSON with comments")
		case seen[name]:
			return p.invalid(nil, "it has %s twice", within+name)
		}
		seen[name] = true
		place, known := places[name]
		switch {
		case !known:
			p.unused[within+name] = true
		case place != nil:
			if err := json.Unmarshal(value, place); err != nil {
				return p.invalid(err, "%s has a value of the wrong type", within+name)
			}
		}
	}
	_, end := dec.Token()
	if _, more := dec.Token(); end != nil || !errors.Is(more, io.EOF) {
		return p.invalid(end, "it is not one object of JSON with comments")
	}
	return nil
}

// image sets either the image's name or its build.
func (p *parser) image(c *content) error {
	var b struct {
		Dockerfile, Context string
		Args                map[string]string
	}
	if c.Build != nil {
		err := p.object(c.Build, "build.", map[string]any{"dockerfile": &b.Dockerfile, "context": &b.Context, "args": &b.Args})
		if err != nil {
			return err
		}
	}
	if b.Dockerfile == "" {
		b.Dockerfile, b.Context = c.Dockerfile, first(b.Context, c.Context)
	}
	p.out.Image = p.expand(c.Image)
	if b.Dockerfile == "" {
		return nil
	}
	if c.Image != "" {
		return p.invalid(nil, "it has both image and a Dockerfile, and needs one of them")
	}
	file, inside := p.inProject(path.Join(path.Dir(p.path), b.Dockerfile))
	from, fromInside := p.inProject(path.Join(path.Dir(p.path), first(b.Context, ".")))
	if !inside || !fromInside {
		return p.invalid(nil, "build leads out of the project's folder")
	}
	p.out.Build = &Build{File: file, Context: from, Args: map[string]string{}}
	for name, value := range b.Args {
		p.out.Build.Args[name] = p.expand(value)
	}
	return nil
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// inProject cleans a path that is relative to the project's folder.
func (p *parser) inProject(name string) (string, bool) {
	name = path.Clean(name)
	return name, filepath.IsLocal(name)
}

func (p *parser) environment(c *content) error {
	for name, value := range c.Container {
		p.out.Env[name] = p.expand(value)
	}
	p.own = maps.Clone(p.out.Env)
	for name, value := range c.Remote {
		if value == nil { // null removes a variable
			delete(p.out.Env, name)
			continue
		}
		p.out.Env[name] = p.expand(*value)
	}
	for name, value := range p.out.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return p.invalid(nil, "containerEnv or remoteEnv has the invalid variable %q", name)
		}
	}
	return nil
}

// mounts takes the mounts of the project's own folder that go into the workspace.
func (p *parser) mounts(c *content) error {
	for _, raw := range c.Mounts {
		fields := map[string]string{}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			for part := range strings.SplitSeq(text, ",") {
				key, value, _ := strings.Cut(part, "=")
				fields[strings.TrimSpace(key)] = value
			}
		} else {
			var object map[string]any
			if err := json.Unmarshal(raw, &object); err != nil {
				return p.invalid(err, "an entry of mounts is neither text nor an object")
			}
			for key, value := range object {
				fields[key], _ = value.(string)
			}
		}
		from := p.expand(strings.ReplaceAll(first(fields["source"], fields["src"]), "${localWorkspaceFolder}", projectMark))
		to := p.expand(first(fields["target"], first(fields["dst"], fields["destination"])))
		source, below := under(from, projectMark)
		dest, inside := under(to, Workspace)
		if fields["type"] != "bind" || !below || !inside || dest == "." {
			p.unused["mounts"] = true
			continue
		}
		p.out.Mounts = append(p.out.Mounts, Mount{source, dest})
	}
	return nil
}

// under returns the path of name relative to a folder.
func under(name, folder string) (string, bool) {
	rest, ok := strings.CutPrefix(path.Clean(name)+"/", folder+"/")
	rest = strings.TrimSuffix(rest, "/")
	return first(rest, "."), ok && (rest == "" || filepath.IsLocal(rest))
}

func (p *parser) commands(c *content) error {
	for _, step := range []struct {
		name string
		raw  json.RawMessage
	}{{"onCreateCommand", c.OnCreate}, {"updateContentCommand", c.Update}, {"postCreateCommand", c.PostCreate}} {
		if step.raw == nil || bytes.Equal(step.raw, []byte("null")) {
			continue
		}
		parts := map[string]json.RawMessage{}
		if json.Unmarshal(step.raw, &parts) != nil {
			parts = map[string]json.RawMessage{"": step.raw}
		}
		for _, part := range slices.Sorted(maps.Keys(parts)) {
			argv, ok := p.argv(parts[part])
			if !ok {
				return p.invalid(nil, "%s must be a command line, a list of words, or an object of these", step.name)
			}
			if len(argv) > 0 {
				p.out.Commands = append(p.out.Commands, Command{strings.TrimSuffix(step.name+" "+part, " "), argv})
			}
		}
	}
	return nil
}

// argv returns a command: a line for the shell, or words.
func (p *parser) argv(raw json.RawMessage) (argv []string, ok bool) {
	var line string
	if json.Unmarshal(raw, &line) == nil {
		if strings.TrimSpace(line) == "" {
			return nil, true
		}
		return []string{"/bin/sh", "-c", p.expand(line)}, true
	}
	if json.Unmarshal(raw, &argv) != nil {
		return nil, false
	}
	for i := range argv {
		argv[i] = p.expand(argv[i])
	}
	return argv, true
}

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z]+)(?::([^}:]*)(?::([^}]*))?)?\}`) })

// projectMark stands for the project's folder on this machine in mounts.
const projectMark = "/\x00project"

// expand expands the format's variables. Variables of this machine get the file's default or are
// empty; those of the container that the file doesn't set stay, since they are known only inside. The project's folder is
// its place in the session, so no program learns its path on this machine.
func (p *parser) expand(text string) string {
	return variable().ReplaceAllStringFunc(text, func(whole string) string {
		m := variable().FindStringSubmatch(whole)
		switch m[1] {
		case "localWorkspaceFolder", "containerWorkspaceFolder":
			return Workspace
		case "localWorkspaceFolderBasename":
			return p.base
		case "containerWorkspaceFolderBasename":
			return path.Base(Workspace)
		case "devcontainerId":
			return p.base
		case "localEnv", "env":
			p.unused["${localEnv:"+m[2]+"}"] = true
			return m[3]
		case "containerEnv":
			if value, set := p.own[m[2]]; set {
				return value
			}
		}
		return whole
	})
}
