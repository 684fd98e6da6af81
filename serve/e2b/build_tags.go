package e2b

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/templates"
)

type tagsBody struct {
	Target string   `json:"target"`
	Name   string   `json:"name"`
	Tags   []string `json:"tags"`
}

// tag adds tags to a built template.
func (s *Server) tag(c call) (int, any, error) {
	var body tagsBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	if err := checkTags(body.Tags); err != nil {
		return 0, nil, err
	}
	t, err := s.builtOf(body.Target, c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	if len(t.Tags)+len(body.Tags) > maxTags {
		return 0, nil, fail(http.StatusBadRequest, fmt.Sprintf("the template would have more than %d tags; remove some first", maxTags))
	}
	tags, err := s.opts.Builder.Tag(c.r.Context(), t.ID, body.Tags)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{t.ID, tags}, nil
}

func (s *Server) builtOf(ref, owner string) (templates.Template, error) {
	t, err := s.snapshotOf(ref, owner)
	if err == nil && !t.Built {
		err = errNoTemplate
	}
	return t, err
}

// untag removes tags from an owner's built templates with a given name.
func (s *Server) untag(c call) (int, any, error) {
	var body tagsBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	if err := checkTags(body.Tags); err != nil {
		return 0, nil, err
	}
	name, _, _ := strings.Cut(body.Name, ":")
	family := s.family(name, c.key.Owner)
	if len(family) == 0 {
		return 0, nil, errNoTemplate
	}
	for _, t := range family {
		if err := s.opts.Builder.Untag(c.r.Context(), t.ID, body.Tags); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusNoContent, nil, nil
}

// family returns an owner's built templates with a given name.
func (s *Server) family(name, owner string) []templates.Template {
	own, _ := s.snapshotsOf(owner)
	return slices.DeleteFunc(own, func(t templates.Template) bool { return !t.Built || t.Name != name })
}

type tagAnswer struct {
	Tag       string `json:"tag"`
	BuildID   string `json:"buildID"`
	CreatedAt string `json:"createdAt"`
}

// tagsOf returns the tags of all templates with a given name.
func (s *Server) tagsOf(c call) (int, any, error) {
	if c.r.PathValue("what") != "tags" {
		return s.unknownPath(c)
	}
	name, _ := templates.SplitTag(c.r.PathValue("id"))
	if t, err := s.builtOf(name, c.key.Owner); err == nil {
		name = t.Name
	}
	family := s.family(name, c.key.Owner)
	if len(family) == 0 {
		return 0, nil, errNoTemplate
	}
	all := []tagAnswer{}
	for _, t := range family {
		for _, tag := range t.Tags {
			all = append(all, tagAnswer{tag, t.ID, t.Created.UTC().Format(milliseconds)})
		}
	}
	return http.StatusOK, all, nil
}
