package podman

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Companions implements [sandbox.Accompanied].
func (s *Sandbox) Companions(ctx context.Context) ([]sandbox.CompanionState, error) {
	found, err := s.b.companionsOf(ctx, s.spec.ID)
	if err != nil {
		return nil, explain(ctx, "list the services", err)
	}
	gap := ""
	if e, err := s.b.engine(ctx); err == nil && e.info.stacksProfiles() {
		gap = "it runs without an AppArmor profile: under the one of " + e.info.Host.OCIRuntime.Name + " its programs couldn't signal each other"
	}
	var out []sandbox.CompanionState
	for _, c := range found {
		out = append(out, sandbox.CompanionState{Name: c.Labels[labelCompanion], Image: c.Image, State: c.State, ExitCode: c.ExitCode, Gap: gap})
	}
	slices.SortFunc(out, func(a, b sandbox.CompanionState) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (b *Backend) companionsOf(ctx context.Context, id string) ([]listed, error) {
	var found []listed
	query := url.Values{"all": {"true"}, "filters": {`{"label":["` + labelRoot + "=" + b.opts.Root + `","` + labelSandbox + "=" + id + `","` + labelCompanion + `"]}`}}
	err := b.do(ctx, request{method: http.MethodGet, path: "/containers/json", query: query, out: &found})
	return found, err
}

// removeCompanions removes the containers in a sandbox's network, without which Podman doesn't remove
// the sandbox.
func (b *Backend) removeCompanions(ctx context.Context, name string) error {
	found, err := b.companionsOf(ctx, strings.TrimPrefix(name, b.name("")))
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found {
		errs = append(errs, b.remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// CompanionOutput implements [sandbox.Accompanied].
func (s *Sandbox) CompanionOutput(ctx context.Context, name string, lines int, stdout, stderr io.Writer) error {
	err := s.output(ctx, name, lines, stdout, stderr)
	if isNotFound(err) {
		return fail(sandbox.ErrNotFound, err, "service %s not found", name)
	}
	return explain(ctx, "read the service's output", err)
}

const (
	wordsLines = 12
	wordsBytes = 2000
)

var wordsWait = patience.For(5 * time.Second)

// unframed writes the frames of an attached stream to their writers.
type unframed struct {
	stdout, stderr io.Writer

	held []byte // of a head that is cut
	left int    // bytes of the frame
	to   io.Writer
}

// Write implements [io.Writer].
func (u *unframed) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if u.left > 0 {
			n := min(u.left, len(rest))
			if _, err := u.to.Write(rest[:n]); err != nil {
				return 0, err
			}
			u.left, rest = u.left-n, rest[n:]
			continue
		}
		n := min(frameHeader-len(u.held), len(rest))
		u.held, rest = append(u.held, rest[:n]...), rest[n:]
		if len(u.held) == frameHeader {
			u.open()
		}
	}
	return len(p), nil
}

func (u *unframed) open() {
	u.left, u.to = int(binary.BigEndian.Uint32(u.held[4:])), u.stdout
	if u.held[0] == 2 {
		u.to = u.stderr
	}
	if u.to == nil {
		u.to = io.Discard
	}
	u.held = u.held[:0]
}
