package page

import (
	"net/http"

	"github.com/wisbox/wisbox"
)

func (s *Server) templates(*http.Request) (any, error) {
	all, err := s.opts.Manager.Templates()
	if err != nil && len(all) == 0 {
		return nil, err
	}
	return map[string]any{"templates": append([]wisbox.Template{}, all...)}, nil
}

func (s *Server) removeTemplate(r *http.Request) (any, error) {
	return struct{}{}, s.opts.Manager.RemoveTemplate(r.Context(), r.PathValue("t"))
}

// template makes a template from a session's files.
func template(s *wisbox.Session, r *http.Request) (any, error) {
	var a wisbox.TemplateOptions
	if err := read(r, &a); err != nil {
		return nil, err
	}
	a.Owner = ""
	return s.CreateTemplate(r.Context(), &a)
}
