package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// Store is the image store for List and Prune; *podman.Backend is one.
type Store interface {
	// Images returns all images.
	Images(ctx context.Context) ([]sandbox.ImageInfo, error)
	// RemoveImage removes an image by its ID. If a container uses it or it has several names, the error wraps
	// sandbox.ErrExists.
	RemoveImage(ctx context.Context, id string) error
}

// Image is an image for sessions, or the base of one.
type Image struct {
	Name    string    `json:"image"` // "" if it has none
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	State   State     `json:"state"`
	Size    int64     `json:"size_bytes"` // including the layers of its base
	Created time.Time `json:"created_at"`
	// UsedBy are the sessions that were created with it.
	UsedBy []string `json:"used_by,omitempty"`
	// Kept is the reason why Prune has not removed it.
	Kept string `json:"kept,omitempty"`

	wholly bool // built by wisbox, and has only that name
	latest bool
}

// List returns the images of the store that have a name, and unnamed ones based on wisbox's, the newest first. sessions
// maps each session to its image.
func List(ctx context.Context, s Store, sessions map[string]string) ([]Image, error) {
	found, err := s.Images(ctx)
	if err != nil {
		return nil, err
	}
	out, seen := []Image{}, map[string]bool{}
	for _, info := range found {
		if !seen[info.ID] && (len(info.Tags) > 0 || info.Labels[labelInputs] != "" || info.Labels[labelRecipe] != "") {
			seen[info.ID] = true
			out = append(out, imageOf(info, sessions))
		}
	}
	slices.SortStableFunc(out, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return out, nil
}

func imageOf(info sandbox.ImageInfo, sessions map[string]string) Image {
	i := Image{Name: strings.Join(info.Tags, " "), ID: info.ID, Size: info.Size, Created: info.Created}
	i.Kind, i.State = identify(info)
	i.wholly, i.latest = wholly(info), slices.Contains(info.Tags, Latest)
	for session, image := range sessions {
		if bears(info, image) {
			i.UsedBy = append(i.UsedBy, session)
		}
	}
	slices.Sort(i.UsedBy)
	return i
}

// PruneOptions of [Prune]. nil and zero work.
type PruneOptions struct {
	// DryRun only lists the images to remove; it ignores containers.
	DryRun bool
	// All also removes this version's presets and images built from Containerfiles.
	All bool
}

// Pruned is the result of Prune.
type Pruned struct {
	Removed []Image `json:"removed"`
	// Kept lists the images that could not be removed, with the reason.
	Kept   []Image `json:"kept"`
	DryRun bool    `json:"dry_run"`
}

// Prune removes the images of other versions of wisbox, except those that a container or one of the sessions uses. It
// stops at the first error. It keeps images that wisbox didn't build or that have another name.
func Prune(ctx context.Context, s Store, sessions map[string]string, opts *PruneOptions) (*Pruned, error) {
	if opts == nil {
		opts = &PruneOptions{}
	}
	found, err := List(ctx, s, sessions)
	if err != nil {
		return nil, err
	}
	p := &Pruned{Removed: []Image{}, Kept: []Image{}, DryRun: opts.DryRun}
	slices.SortStableFunc(found, func(a, b Image) int { return floor(a) - floor(b) }) // bases of other images go last
	for _, i := range found {
		if !opts.takes(i) {
			continue
		}
		if i.Kept, err = p.remove(ctx, s, i); err != nil {
			return p, err
		}
		if i.Kept == "" {
			p.Removed = append(p.Removed, i)
		} else {
			p.Kept = append(p.Kept, i)
		}
	}
	return p, nil
}

func (o *PruneOptions) takes(i Image) bool {
	return i.wholly && (i.State == Old || o.All && (i.Kind == KindPreset || i.Kind == KindBuilt))
}

// remove removes one image, or returns the reason why it stays.
func (p *Pruned) remove(ctx context.Context, s Store, i Image) (kept string, err error) {
	above := func(k Image) bool { return floor(k) < floor(i) && (floor(i) == floorBase || k.State == Old) }
	switch {
	case len(i.UsedBy) > 0:
		return "a session was created with it", nil
	case i.latest:
		return Latest + " is a name of it; wisbox image build gives that to this version's", nil
	case i.Kind != KindBuilt && slices.ContainsFunc(p.Kept, above): // it would only lose its name, and free no bytes
		return "an image that stays may stand on it", nil
	case p.DryRun:
		return "", nil
	}
	err = s.RemoveImage(ctx, i.ID)
	if errors.Is(err, sandbox.ErrExists) {
		return "a container has it, or an image that stands on it", nil
	}
	return "", err
}

// Floors of images: each is based only on those with a higher number.
const (
	floorBuilt = iota
	floorPreset
	floorDefault
	floorBase
)

func floor(i Image) int {
	switch i.Kind {
	case KindPreset:
		return floorPreset
	case KindDefault:
		return floorDefault
	case KindBase:
		return floorBase
	}
	return floorBuilt
}
