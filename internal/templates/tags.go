package templates

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// DefaultTag is the tag of a built template's name without a tag.
const DefaultTag = "default"

var tagForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`) })

// CheckTag checks a tag.
func CheckTag(tag string) error {
	if !tagForm().MatchString(tag) {
		return tool.Errorf(tool.Invalid, "a tag must be 1 to 128 letters, digits and . _ -, and begin with a letter, digit or _").In("tags")
	}
	return nil
}

// answers reports whether a name refers to the template.
func (t *Template) answers(ref string) bool {
	if !t.Built {
		return t.Name == ref
	}
	name, tag := SplitTag(ref)
	return t.Name == name && slices.Contains(t.Tags, tag)
}

// SplitTag splits NAME:TAG; the default tag replaces a missing one.
func SplitTag(ref string) (name, tag string) {
	if name, tag, ok := strings.Cut(ref, ":"); ok {
		return name, tag
	}
	return ref, DefaultTag
}

// Tag adds tags to a built template and removes them from other templates of its name.
func (s *Store) Tag(ctx context.Context, id string, tags []string) (Template, error) {
	return s.edit(ctx, id, func(t *Template) { s.takeTags(*t, tags) }, func(t *Template) {
		for _, tag := range tags {
			if !slices.Contains(t.Tags, tag) {
				t.Tags = append(t.Tags, tag)
			}
		}
	})
}

// Untag removes tags of a built template. The template stays.
func (s *Store) Untag(ctx context.Context, id string, tags []string) (Template, error) {
	return s.edit(ctx, id, func(*Template) {}, without(tags))
}

func without(tags []string) func(*Template) {
	return func(t *Template) {
		t.Tags = slices.DeleteFunc(t.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
	}
}

func (s *Store) edit(ctx context.Context, id string, before, change func(*Template)) (Template, error) {
	free, err := s.locked(ctx)
	if err != nil {
		return Template{}, err
	}
	defer free()
	t, err := s.Find(id, "")
	if err != nil {
		return t, err
	}
	before(&t)
	return s.change(id, change)
}

// change rewrites a template's record. The caller must hold the store's lock.
func (s *Store) change(id string, change func(*Template)) (Template, error) {
	rec, err := s.read(id)
	if err != nil {
		return rec.Template, err
	}
	change(&rec.Template)
	return rec.Template, jsonfile.Write(filepath.Join(s.dir, id, recordFile), rec)
}

// takeTags removes tags from all other templates with the same owner and name. The caller must hold
// the store's lock.
func (s *Store) takeTags(t Template, tags []string) {
	all, err := s.List()
	if err != nil {
		s.log.Warn("look for templates with the tags of another", "error", err)
	}
	for _, other := range all {
		has := slices.ContainsFunc(other.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
		if other.ID == t.ID || other.Owner != t.Owner || other.Name != t.Name || !has {
			continue
		}
		if _, err := s.change(other.ID, without(tags)); err != nil {
			s.log.Warn("take a tag from a template", "error", err)
		}
	}
}
