// Package digest writes the summary of a workspace that a model reads first:
// layout, languages, the commands that build, test and lint it, and caveats.
//
// [Build] computes it from the files. It runs nothing, and repeats only names from the files, in a restricted alphabet,
// because a workspace's text is not trusted in a prompt. A caller may replace it, for a session or for all sessions: a
// [Digester] returns the session's own digest, else the one of the override store, else the one computed from the
// files, else a placeholder, with a warning in the log. The package knows nothing of sessions, engines or models; the
// caller can supply a producer of better text ([Digester.Optimize]).
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

// Level is the length of a digest.
type Level string

// The levels of a digest.
const (
	Summary Level = "summary" // the project and how to test it
	Full    Level = "full"    // layout, languages, all commands, caveats
)

// Scope is the set of sessions for which a replaced digest holds.
type Scope string

// The scopes of a digest.
const (
	Session Scope = "session" // this session
	Global  Scope = "global"  // every session that uses the override store and tag
)

// Source is the origin of a digest, in order of precedence.
type Source string

// The sources of a digest.
const (
	FromSession     Source = "session"
	FromOverrides   Source = "override"
	FromFiles       Source = "files"
	FromPlaceholder Source = "placeholder"
)

// Text is a digest in two lengths, as Markdown. If Summary is empty, the full text is used instead.
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
		return tool.Errorf(tool.TooLarge, "the digest has %d characters; the maximum is %d", n, maxText).In("set")
	}
	if !utf8.ValidString(t.Full) || !utf8.ValidString(t.Summary) {
		return tool.Errorf(tool.NotText, "the digest must be UTF-8 text").In("set")
	}
	return nil
}

// Overrides stores digests beyond a session, under a key and a tag. Get returns fs.ErrNotExist if there is none. Its
// methods may be called concurrently. [Dir] implements it.
type Overrides interface {
	Get(ctx context.Context, key, tag string) (Text, error)
	Put(ctx context.Context, key, tag string, text Text) error
	// Delete deletes a digest. An unknown one is not an error.
	Delete(ctx context.Context, key, tag string) error
}

// DefaultTag is the default tag in the override store.
const DefaultTag = "latest"

// Options configure a Digester; nil means all defaults.
type Options struct {
	// Files is the workspace; nil means none.
	Files fs.FS
	// Overrides is used if the session has no digest; nil means none.
	Overrides Overrides
	Key, Tag  string // in Overrides; default SectionKey and DefaultTag
	// Kept returns the session's own digest (nil: none) and Keep stores a new one (nil: deletes it), if several
	// processes share a session. Set both or neither; without them the Digester keeps the digest itself.
	Kept func(context.Context) (*Text, error)
	Keep func(context.Context, *Text) error
	// Log gets a line if the result is only a placeholder; default none.
	Log *slog.Logger
}

// Digester returns the digest of one workspace. Its methods may be called concurrently.
type Digester struct {
	opts Options

	turn turns // allows one look at a time, so that no session takes the turns of others

	mu  sync.Mutex
	own *Text // the session's
}

// New returns a Digester.
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

// Get returns the digest with the highest precedence, and its source. It fails only if ctx ends.
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

// Report returns the report on the files, regardless of a replaced digest.
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

// Set replaces the digest at a scope. Global is unsupported without an override store.
func (d *Digester) Set(ctx context.Context, text Text, scope Scope) error {
	if err := text.check(); err != nil {
		return err
	}
	return d.at(scope, func() error { return d.keep(ctx, &text) }, func(all Overrides) error {
		return all.Put(ctx, d.opts.Key, d.opts.Tag, text)
	})
}

// Clear deletes the replaced digest at a scope.
func (d *Digester) Clear(ctx context.Context, scope Scope) error {
	return d.at(scope, func() error { return d.keep(ctx, nil) }, func(all Overrides) error {
		return all.Delete(ctx, d.opts.Key, d.opts.Tag)
	})
}

// at calls own or all, depending on the scope.
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
