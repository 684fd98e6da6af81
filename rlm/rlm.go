package rlm

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Defaults of the options.
const (
	DefaultMaxText  = 128 << 20 // bytes of one text
	DefaultMaxTotal = 256 << 20 // bytes of all bindings
	MaxBindings     = 1000
)

// ContextName is the name of the binding that always exists.
const ContextName = "context"

// Files reads texts from files; *vfs.FS is one.
type Files interface {
	ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error)
}

// Options configure Ops. The zero value works, with neither files nor eval.
type Options struct {
	Files Files     // nil: texts can't be loaded by path
	Eval  Evaluator // nil: the operation eval is unsupported
	Cache *Cache    // nil: results aren't cached
	// Logger gets the errors of the cache; nil logs nothing.
	Logger *slog.Logger
	// MaxText and MaxTotal bound one text and all of them, in bytes; the defaults
	// are 128 MiB and 256 MiB.
	MaxText, MaxTotal int64

	room *room // shared by the conversations of a run; nil means a separate one
}

// Ops holds the bindings of one session and runs operations over them. It may be
// used from many goroutines at once. Bindings are replaced but never removed.
type Ops struct {
	opts Options

	mu       sync.Mutex
	bindings Bindings
	charged  map[string]int64 // bytes of opts.room, by binding
}

// New returns an Ops whose only binding is context, an empty text. It doesn't fail today; the
// error is for future options.
func New(opts *Options) (*Ops, error) {
	o := &Ops{bindings: Bindings{ContextName: NewText("")}, charged: map[string]int64{}}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.MaxText <= 0 {
		o.opts.MaxText = DefaultMaxText
	}
	if o.opts.room == nil {
		o.opts.room = newRoom(o.opts.MaxTotal)
	}
	if o.opts.Logger == nil {
		o.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// CanEval reports whether the operation eval is available.
func (o *Ops) CanEval() bool { return o.opts.Eval != nil }

// Bindings returns a copy of the current names and texts.
func (o *Ops) Bindings() Bindings {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.bindings)
}

// Bind binds a text to a name, in place of the one that was bound to it.
func (o *Ops) Bind(name, text string) (*Text, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if int64(len(text)) > o.opts.MaxText {
		return nil, tool.Errorf(tool.TooLarge, "the text has %d bytes; the maximum is %d", len(text), o.opts.MaxText)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bindings[name] == nil && len(o.bindings) >= MaxBindings {
		return nil, tool.Errorf(tool.Limit, "there are already %d bindings, the maximum; use one of their names again", MaxBindings)
	}
	size := int64(len(text))
	if err := o.opts.room.take(size - o.charged[name]); err != nil {
		return nil, err
	}
	t := NewText(text)
	o.bindings[name], o.charged[name] = t, size
	return t, nil
}

// release returns the room of the bindings. The caller must not use the Ops any more.
func (o *Ops) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, size := range o.charged {
		_ = o.opts.room.take(-size) // a negative size never fails
		delete(o.charged, name)
	}
}

const maxName = 80 // characters

// checkName refuses names that are hard to write or to distinguish.
func checkName(name string) error {
	bad := func(r rune) bool { return r > '~' || r <= ' ' || strings.ContainsRune("\"'`\\,[]{}()", r) }
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, bad) {
		return tool.Errorf(tool.Invalid, "%q can't name a binding; give 1 to %d ASCII letters, digits and the like, without blanks, quotes, commas and brackets", clip(name, maxName), maxName).In("name")
	}
	return nil
}

// Outcome is the result of an operation.
type Outcome struct {
	Result  string
	Cached  bool
	Failure string   // of eval: the code's error; "" means that it succeeded
	Notes   []string // of eval: surprises in the names of inputs
}

// Do runs an operation with its arguments as a JSON object. Errors are
// *tool.Error; their field is the argument.
func (o *Ops) Do(ctx context.Context, op string, args json.RawMessage) (Outcome, error) {
	if op == OpEval {
		return o.eval(ctx, args)
	}
	decoded, err := decode(op, args)
	if err != nil {
		return Outcome{}, err
	}
	texts, err := o.Bindings().take(decoded.reads())
	if err != nil {
		return Outcome{}, err
	}
	return o.cached(op, decoded, decoded.reads(), texts, "", func() (string, string, error) {
		result, err := within(ctx, o.opts.MaxText, decoded, texts)
		return result, "", err
	})
}

func (o *Ops) eval(ctx context.Context, args json.RawMessage) (Outcome, error) {
	var a evalArgs
	if err := tool.Decode(args, &a); err != nil {
		return Outcome{}, err
	}
	if o.opts.Eval == nil {
		return Outcome{}, tool.Errorf(tool.Unsupported, "eval is not available: this session has no Python in WebAssembly; use the other operations").In("op")
	}
	bindings := o.Bindings()
	names := a.names(bindings)
	texts, err := bindings.take(names)
	if err != nil {
		return Outcome{}, err
	}
	if err := a.check(); err != nil {
		return Outcome{}, err
	}
	inputs := make(map[string]string, len(names))
	for i, name := range names {
		if !unusable(name) {
			inputs[name] = texts[i].s
		}
	}
	run := func() (string, string, error) { return o.opts.Eval.Eval(ctx, a.Code, inputs) }
	version := o.opts.Eval.Version()
	if version == "" { // not deterministic
		result, failure, err := run()
		return Outcome{Result: result, Failure: failure, Notes: notesOn(names)}, err
	}
	a.Inputs = &names
	out, err := o.cached(OpEval, a, names, texts, version, run)
	out.Notes = notesOn(names)
	return out, err
}

// cached returns an operation's result from the cache, or runs the operation and caches its
// result. It never caches a failure.
func (o *Ops) cached(op string, args any, names []string, texts []*Text, version string, run func() (string, string, error)) (Outcome, error) {
	key := ""
	if o.opts.Cache != nil {
		canonical, err := json.Marshal(args)
		if err != nil {
			return Outcome{}, err
		}
		key = cacheKey(op, canonical, names, texts, version)
		if value, hit := o.opts.Cache.Get(key); hit {
			return Outcome{Result: value, Cached: true}, nil
		}
	}
	result, failure, err := run()
	if err != nil || failure != "" || key == "" {
		return Outcome{Result: result, Failure: failure}, err
	}
	if err := o.opts.Cache.Put(key, result); err != nil {
		o.opts.Logger.Warn("rlm.cache", slog.String("error", err.Error()))
	}
	return Outcome{Result: result}, nil
}

// Load binds a text, or the whole text of a file, to a name.
func (o *Ops) Load(ctx context.Context, p LoadParams) (LoadResult, error) {
	if err := checkName(p.Name); err != nil {
		return LoadResult{}, err
	}
	content, err := o.textOf(ctx, p)
	if err != nil {
		return LoadResult{}, err
	}
	t, err := o.Bind(p.Name, content)
	if err != nil {
		return LoadResult{}, err
	}
	sum := t.SHA256()
	return LoadResult{Name: p.Name, Chars: t.Chars(), Lines: t.Lines(), Bytes: len(t.s), SHA256: hex.EncodeToString(sum[:])}, nil
}

func (o *Ops) textOf(ctx context.Context, p LoadParams) (string, error) {
	switch {
	case (p.Path == nil) == (p.Text == nil):
		return "", tool.Errorf(tool.Invalid, "give either path, a file of the workspace, or text").In("path")
	case p.Text != nil:
		return strings.ToValidUTF8(*p.Text, "\uFFFD"), nil
	case o.opts.Files == nil:
		return "", tool.Errorf(tool.Unsupported, "there are no files here; give text").In("path")
	}
	data, _, err := o.opts.Files.ReadWhole(ctx, *p.Path, o.opts.MaxText)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", tool.Errorf(tool.NotText, "the file is not UTF-8 text").In("path")
	}
	return text(data), nil
}
