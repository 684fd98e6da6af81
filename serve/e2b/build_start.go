package e2b

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/internal/builds"
	"sync"
)

type startBody struct {
	Start        string          `json:"startCmd"`
	Ready        string          `json:"readyCmd"`
	FromImage    string          `json:"fromImage"`
	FromTemplate string          `json:"fromTemplate"`
	Registry     map[string]any  `json:"fromImageRegistry"`
	Steps        []startBodyStep `json:"steps"`
}

type startBodyStep struct {
	Type  string   `json:"type"`
	Args  []string `json:"args"`
	Files string   `json:"filesHash"`
}

// startBuild starts a build. Its files must be complete.
func (s *Server) startBuild(c call) (int, any, error) {
	b, err := s.waiting(c)
	if err != nil {
		return 0, nil, err
	}
	var body startBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	wanted := Build{ID: b.ID, Name: b.Name, Owner: b.Owner, Tags: b.Tags, Start: body.Start, Ready: body.Ready, Log: b.log}
	if err := s.baseOf(&wanted, &body); err != nil {
		return 0, nil, err
	}
	if wanted.Recipe.Steps, err = b.steps(body.Steps); err != nil {
		return 0, nil, err
	}
	if err := wanted.Recipe.Check(); err != nil {
		return 0, nil, err
	}
	select {
	case b.upload <- struct{}{}:
		defer func() { <-b.upload }()
	default:
		return 0, nil, fail(http.StatusConflict, "files of the build are still being uploaded; wait for them, then start again")
	}
	b.mu.Lock()
	begun := b.begun
	b.begun = true
	b.expires.Stop()
	b.mu.Unlock()
	if begun {
		return 0, nil, errBegun
	}
	quota := s.quota(c.key)
	quota.Snapshots = s.opts.Snapshots
	s.yard.tasks.Go(func() { b.run(&wanted, quota) })
	return http.StatusAccepted, nil, nil
}

const maxCommand = 32 << 10 // bytes of a start or ready command

// ofE2B matches the base image that clients send by default.
var ofE2B = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(docker\.io/)?e2bdev/(base|code-interpreter)(:[A-Za-z0-9._-]*)?$`)
})

// baseOf sets the base of a build.
func (s *Server) baseOf(b *Build, body *startBody) error {
	switch {
	case len(body.Registry) > 0:
		return fail(http.StatusBadRequest, "fromImageRegistry is not supported; leave it out, and name an image that the server's machine has")
	case len(body.Start) > maxCommand || len(body.Ready) > maxCommand || strings.Contains(body.Start+body.Ready, "\x00"):
		return fail(http.StatusBadRequest, fmt.Sprintf("startCmd or readyCmd has a NUL, or more than %d bytes, the maximum", maxCommand))
	case body.FromTemplate != "" && !IsTemplate(body.FromTemplate):
		t, err := s.snapshotOf(body.FromTemplate, b.Owner)
		if err != nil {
			return err
		}
		if !t.Built {
			return fail(http.StatusBadRequest, "fromTemplate is a snapshot of a sandbox, which has no image; use a template that was built")
		}
		b.Template, b.Recipe.Inherit = t.ID, true
	case !ofE2B().MatchString(body.FromImage):
		b.Image = body.FromImage
	}
	return nil
}

// steps returns the steps of a body, with their files.
func (b *build) steps(all []startBodyStep) ([]builds.Step, error) {
	steps, sum := make([]builds.Step, len(all)), int64(0)
	for i, one := range all {
		steps[i] = builds.Step{Kind: one.Type, Args: one.Args}
		if one.Type != builds.Copy {
			continue
		}
		if !hashForm().MatchString(one.Files) {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: filesHash must be 64 lower-case hexadecimal digits", i))
		}
		steps[i].Files = filepath.Join(b.dir, one.Files)
		info, err := os.Stat(steps[i].Files)
		if err != nil {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: its files were not uploaded; request a link, and upload them", i))
		}
		if sum += info.Size(); sum > maxUpload {
			return nil, fail(http.StatusBadRequest, fmt.Sprintf("steps[%d]: the steps copy more than 1 GiB in total, the maximum; copy less, or the same files only once", i))
		}
	}
	return steps, nil
}
