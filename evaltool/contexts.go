package evaltool

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/tool"
)

// Languages of contexts.
const (
	LanguagePython     = "python"
	LanguageBash       = "bash"
	LanguageJavaScript = "javascript"
)

// Languages lists all languages of contexts. The image decides which of them a session has.
var Languages = []string{LanguagePython, LanguageBash, LanguageJavaScript}

// MaxContexts is the maximum of named contexts in a session.
const MaxContexts = 7

// maxDirBytes is the maximum length of a context's directory, as on Linux.
const maxDirBytes = 4096

// Context is a kept interpreter with a name. It exists from its creation or its first evaluation
// until it is removed.
type Context struct {
	Name     string `json:"name"`               // 1 to 64 letters, digits, dots, hyphens and underscores
	Language string `json:"language,omitempty"` // one of Languages, default python
	// Dir and Env are its directory and variables at each start. If the directory can't be entered, the
	// interpreter starts in the workspace, without an error.
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
}

// contexts holds the named contexts in the order of their creation.
type contexts struct {
	mu  sync.Mutex
	all []Context
}

var contextName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })

func checkContext(p Params) error {
	if p.Context != "" && !contextName().MatchString(p.Context) {
		return tool.Errorf(tool.Invalid, "context is %q; it must be 1 to 64 letters, digits, dots, hyphens and underscores", Clip(p.Context, maxPathFold)).In("context")
	}
	return nil
}

// CreateContext creates a context. If the name is taken, the error is exists.
func (e *Evaluator) CreateContext(c Context) (Context, error) {
	if c.Name == "" {
		return c, tool.Errorf(tool.Invalid, "a context has a name").In("name")
	}
	if err := checkContext(Params{Context: c.Name}); err != nil {
		return c, tool.AsError(err).In("name")
	}
	if c.Language = orDefault(c.Language, LanguagePython); !slices.Contains(Languages, c.Language) {
		return c, noLanguage(c.Language)
	}
	if len(c.Dir) > maxDirBytes || strings.Contains(c.Dir, "\x00") {
		return c, tool.Errorf(tool.Invalid, "dir is too long or has a NUL; the maximum is %d bytes without NUL", maxDirBytes).In("dir")
	}
	e.contexts.mu.Lock()
	defer e.contexts.mu.Unlock()
	if e.contexts.at(c.Name) >= 0 {
		return c, tool.Errorf(tool.Exists, "context %s already exists; remove it, or choose another name", c.Name).In("name")
	}
	return c, e.contexts.add(c)
}

// add adds a context. The caller must hold mu.
func (k *contexts) add(c Context) error {
	if len(k.all) >= MaxContexts {
		return tool.Errorf(tool.Limit, "there are already %d contexts, the maximum; remove one", MaxContexts).In("context")
	}
	k.all = append(k.all, c)
	return nil
}

func (k *contexts) at(name string) int {
	return slices.IndexFunc(k.all, func(c Context) bool { return c.Name == name })
}

// Contexts returns the named contexts, in the order of their creation.
func (e *Evaluator) Contexts() []Context {
	e.contexts.mu.Lock()
	defer e.contexts.mu.Unlock()
	return slices.Clone(e.contexts.all)
}

// RestartContext ends a context's evaluation and interpreter, so that its names are lost; "" means
// the default contexts.
func (e *Evaluator) RestartContext(ctx context.Context, name string) error {
	if _, err := e.context(name); err != nil {
		return err
	}
	return e.restart(ctx, name)
}

func (e *Evaluator) restart(ctx context.Context, name string) error {
	for _, r := range e.resetters() {
		r.Cancel(name)
	}
	return e.Reset(context.WithoutCancel(ctx), name) // an interrupt takes two seconds at most
}

// RemoveContext removes a context, and ends its evaluation and interpreter.
func (e *Evaluator) RemoveContext(ctx context.Context, name string) error {
	if name == "" {
		return tool.Errorf(tool.Invalid, "the default context can't be removed; restart it").In("name")
	}
	if !e.contexts.remove(name) {
		return noContext(name)
	}
	return e.restart(ctx, name) // also what ends now: an evaluation that comes later sees that the context is gone
}

// remove removes a context, and reports whether it existed.
func (k *contexts) remove(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.at(name)
	if at >= 0 {
		k.all = slices.Delete(k.all, at, at+1)
	}
	return at >= 0
}

// forgetRemoved ends the interpreter that an evaluation has started in a context that was removed
// since the call began.
func (e *Evaluator) forgetRemoved(ctx context.Context, name string) {
	if _, err := e.context(name); err != nil {
		_ = e.restart(ctx, name)
	}
}

func (e *Evaluator) context(name string) (Context, error) {
	e.contexts.mu.Lock()
	defer e.contexts.mu.Unlock()
	if name == "" {
		return Context{}, nil
	}
	if at := e.contexts.at(name); at >= 0 {
		return e.contexts.all[at], nil
	}
	return Context{}, noContext(name)
}

func noContext(name string) error {
	return tool.Errorf(tool.NotFound, "context %q not found", Clip(name, maxPathFold)).In("name")
}

func noLanguage(name string) error {
	return tool.Errorf(tool.Unsupported, "unknown language %q; the languages are %s", Clip(name, maxPathFold), strings.Join(Languages, ", ")).In("language")
}

// takeLanguage finds the call's context.
func (e *Evaluator) takeLanguage(c *call, run Run) error {
	found, _ := e.context(c.request.Context) // one that is not there is made for a good call
	c.request.Dir, c.request.ContextEnv = found.Dir, found.Env
	c.language = orDefault(orDefault(run.Language, found.Language), LanguagePython)
	switch {
	case found.Language != "" && c.language != found.Language:
		return tool.Errorf(tool.Invalid, "context %s is for %s; leave language out, or use another context", found.Name, found.Language).In("language")
	case c.language == LanguagePython:
		return nil
	case !slices.Contains(Languages, c.language):
		return noLanguage(c.language)
	case c.request.Sandbox != SandboxContainer || len(run.Globals)+len(run.Reads)+len(run.Writes) > 0:
		return tool.Errorf(tool.Invalid, "%s is evaluated in a kept interpreter of the container, without globals, reads and writes; leave them out", c.language).In("language")
	}
	c.request.Kept = true
	return nil
}

// keepContext creates the context of a valid call if it doesn't exist.
func (e *Evaluator) keepContext(name, language string) error {
	if name == "" {
		return nil
	}
	e.contexts.mu.Lock()
	defer e.contexts.mu.Unlock()
	if e.contexts.at(name) >= 0 {
		return nil
	}
	return e.contexts.add(Context{Name: name, Language: language})
}
