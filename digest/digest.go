// Package digest writes the summary of a workspace that a model reads first:
// layout, languages, the commands that build, test and lint it, and caveats.
//
// [Build] makes it from the files, by code: it runs nothing, and of what stands
// in the files it repeats only names, in a narrow alphabet, because a workspace's
// text is not to be trusted in a prompt. A caller may replace it, for a session or
// for all of them: a [Digester] answers with the session's own digest, else with
// the one of the override store, else with what the files tell, else with a
// placeholder and a warning in the log. It knows nothing of sessions, engines or
// models; a better text comes from a producer of the caller's ([Digester.Optimize]).
package digest

import (
	"context"
	"io/fs"
	"log/slog"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// SectionKey names the digest among the sections of a prompt.
const SectionKey = "workspace-digest"

// Level is how much is told.
type Level string

// The levels of a digest.
const (
	Summary Level = "summary" // what it is and how to test it
	Full    Level = "full"    // layout, languages, all commands, caveats
)

// Scope is where a replaced digest holds.
type Scope string

// The scopes of a digest.
const (
	Session Scope = "session" // this session
	Global  Scope = "global"  // every session that uses the override store and tag
)

// Source says where a digest comes from, in the order in which they are asked.
type Source string

// The sources of a digest.
const (
	FromSession     Source = "session"
	FromOverrides   Source = "override"
	FromFiles       Source = "files"
	FromPlaceholder Source = "placeholder"
)

// Text is a digest in two lengths, as Markdown. Summary may be empty: the full
// text stands for it then.
type Text struct {
	Summary string `json:"summary,omitempty"`
	Full    string `json:"full"`
}

func (t Text) at(level Level) string {
	if level == Summary && t.Summary != "" {
		return t.Summary
	}
	return t.Full
}

const maxText = 64 << 10 // characters of a digest that a caller sets

func (t Text) check() error {
	if n := max(utf8.RuneCountInString(t.Full), utf8.RuneCountInString(t.Summary)); n > maxText {
		return tool.Errorf(tool.TooLarge, "the digest has %d characters; at most %d are taken", n, maxText).In("set")
	}
	if !utf8.ValidString(t.Full) || !utf8.ValidString(t.Summary) {
		return tool.Errorf(tool.NotText, "the digest must be UTF-8 text").In("set")
	}
	return nil
}

// Overrides keeps digests beyond a session, under a key and a tag. Get answers
// fs.ErrNotExist where there is none. All may be called from many goroutines at
// once. [Dir] is one.
type Overrides interface {
	Get(ctx context.Context, key, tag string) (Text, error)
	Put(ctx context.Context, key, tag string, text Text) error
	// Delete forgets one. An unknown one is no error.
	Delete(ctx context.Context, key, tag string) error
}

// DefaultTag is the tag of the override store where none is given.
const DefaultTag = "latest"

// Options says what a Digester works on; nil is all defaults.
type Options struct {
	// Files is the workspace; nil means that there is none to read.
	Files fs.FS
	// Overrides is asked after the session; nil means none.
	Overrides Overrides
	Key, Tag  string // in Overrides; default SectionKey and DefaultTag
	// Kept gives the session's own digest (nil: it has none) and Keep takes a new
	// one (nil: it was taken back), where several processes share a session. Both
	// or none; without them the Digester keeps it itself.
	Kept func(context.Context) (*Text, error)
	Keep func(context.Context, *Text) error
	// Log is told when only a placeholder can be answered (default: nobody).
	Log *slog.Logger
}

// Digester answers with the digest of one workspace. Its methods may be called
// from many goroutines at once.
type Digester struct {
	opts Options

	turn turns // for one look at a time, so that no session takes the others' place

	mu  sync.Mutex
	own *Text // the session's
}

// New makes a Digester.
func New(opts *Options) *Digester {
	if opts == nil {
		opts = &Options{}
	}
	d := &Digester{opts: *opts, turn: make(turns, 1)}
	if d.opts.Key == "" {
		d.opts.Key = SectionKey
	}
	if d.opts.Tag == "" {
		d.opts.Tag = DefaultTag
	}
	if d.opts.Log == nil {
		d.opts.Log = slog.New(slog.DiscardHandler)
	}
	return d
}

const placeholder = "No digest of this workspace exists yet: look at it with `ls`, `glob` and `grep`.\n"

// Get answers with the digest that counts, and where it comes from. It fails
// only when ctx ends.
func (d *Digester) Get(ctx context.Context) (Text, Source, error) {
	if err := ctx.Err(); err != nil {
		return Text{}, "", tool.AsError(err)
	}
	if own := d.session(ctx); own != nil {
		return *own, FromSession, nil
	}
	if text, ok := d.override(ctx); ok {
		return text, FromOverrides, nil
	}
	report, err := d.Report(ctx)
	if err == nil {
		return report.Text(), FromFiles, nil
	}
	if ctx.Err() != nil {
		return Text{}, "", tool.AsError(ctx.Err())
	}
	d.opts.Log.WarnContext(ctx, "no digest of the workspace: a placeholder is used", "key", d.opts.Key, "tag", d.opts.Tag, "cause", err)
	return Text{Full: placeholder}, FromPlaceholder, nil
}

// Report is what the files tell, whatever was set.
func (d *Digester) Report(ctx context.Context) (*Report, error) {
	if d.opts.Files == nil {
		return nil, fs.ErrNotExist
	}
	return buildInTurn(ctx, d.opts.Files, d.turn, working)
}

func (d *Digester) session(ctx context.Context) *Text {
	if d.opts.Kept != nil {
		kept, err := d.opts.Kept(ctx)
		if err != nil {
			d.opts.Log.WarnContext(ctx, "the session's own digest can't be read", "key", d.opts.Key, "cause", err)
		}
		return kept
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own
}

func (d *Digester) override(ctx context.Context) (Text, bool) {
	if d.opts.Overrides == nil {
		return Text{}, false
	}
	text, err := d.opts.Overrides.Get(ctx, d.opts.Key, d.opts.Tag)
	return text, err == nil
}

// Set replaces the digest at a scope. Without an override store there is no
// global one: unsupported.
func (d *Digester) Set(ctx context.Context, text Text, scope Scope) error {
	if err := text.check(); err != nil {
		return err
	}
	return d.at(scope, func() error { return d.keep(ctx, &text) }, func(all Overrides) error {
		return all.Put(ctx, d.opts.Key, d.opts.Tag, text)
	})
}

// Clear takes the digest at a scope back.
func (d *Digester) Clear(ctx context.Context, scope Scope) error {
	return d.at(scope, func() error { return d.keep(ctx, nil) }, func(all Overrides) error {
		return all.Delete(ctx, d.opts.Key, d.opts.Tag)
	})
}

// at does something with the digest at a scope.
func (d *Digester) at(scope Scope, own func() error, all func(Overrides) error) error {
	switch {
	case scope == Session:
		return own()
	case scope == Global && d.opts.Overrides != nil:
		return failed(all(d.opts.Overrides))
	case scope == Global:
		return tool.Errorf(tool.Unsupported, "there is no store for digests beyond this session")
	}
	return tool.Errorf(tool.Invalid, "scope is %q; it must be session or global", scope).In("scope")
}

func (d *Digester) keep(ctx context.Context, text *Text) error {
	if d.opts.Keep != nil {
		return failed(d.opts.Keep(ctx, text))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = text
	return nil
}

func failed(err error) error {
	if err == nil {
		return nil
	}
	return tool.AsError(err)
}
