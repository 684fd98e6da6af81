package serve

import (
	"context"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/serve/e2b"
)

// builder builds the templates that clients describe.
type builder struct {
	kept
	session wisbox.SessionOptions // of each sandbox
	network bool                  // for the steps
}

var _ e2b.Builder = builder{}

func (b builder) Build(ctx context.Context, o *e2b.Build) error {
	b.m.PruneTemplates(ctx, false) // removes images of sandboxes that have ended since
	session := b.session
	session.Name, session.Kept, session.Allow, session.Deny = "", false, nil, nil
	_, err := b.m.BuildTemplate(ctx, &wisbox.TemplateBuild{
		ID: o.ID, Name: o.Name, Owner: o.Owner, Tags: o.Tags, Recipe: &o.Recipe, Base: o.Image, From: o.Template, Start: o.Start, Ready: o.Ready,
		Session: session, Network: b.network, Progress: o.Log,
		Try: func(ctx context.Context, s *wisbox.Session) error {
			program, err := b.m.ProgramOf(ctx, s.Options().Image)
			if err != nil {
				return err
			}
			last := len(o.Recipe.Steps) + 1
			ctx, cancel := context.WithTimeout(ctx, e2b.CreateTime)
			defer cancel()
			return start(ctx, s, program, nil, func(line string) { o.Log(last, line) })
		},
	})
	return err
}

func (b builder) Tag(ctx context.Context, id string, tags []string) ([]string, error) {
	t, err := b.m.TagTemplate(ctx, id, tags)
	return t.Tags, err
}

func (b builder) Untag(ctx context.Context, id string, tags []string) error {
	_, err := b.m.UntagTemplate(ctx, id, tags)
	return err
}

// buildDir returns the directory of the builds' files. They don't outlive the server.
func buildDir(dir string) string { return filepath.Join(dir, "builds") }

// prepareBuilds removes the leftovers of a killed server.
func (s *Server) prepareBuilds() error {
	err := os.RemoveAll(buildDir(s.opts.Dir))
	if err == nil && s.opts.Builds {
		err = os.Mkdir(buildDir(s.opts.Dir), 0o700)
	}
	return err
}

func (s *Server) builder() e2b.Builder {
	if !s.opts.Builds {
		return nil
	}
	return builder{kept{s.opts.Manager}, s.opts.Session, s.opts.BuildNetwork}
}
