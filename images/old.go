package images

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// Labels of what Build makes: the whole hash that its tag begins. An image that
// somebody has made on top of one of ours has them too, but other names.
const (
	labelInputs = "wisbox.inputs"
	labelRecipe = "wisbox.recipe"
)

// Store is the image store that List and Prune work on; *podman.Backend is one.
type Store interface {
	// Images are those that have the label.
	Images(ctx context.Context, label string) ([]sandbox.ImageInfo, error)
	// RemoveImage removes an image by its id, unless a container has it or it has
	// several names: then the error wraps sandbox.ErrExists.
	RemoveImage(ctx context.Context, id string) error
}

// State says what an image is to this wisbox.
type State string

// The states of an image.
const (
	Current State = "current" // this wisbox's own, or the base that it stands on
	Old     State = "old"     // another wisbox's
	Other   State = "other"   // it has a name, or none, that Build didn't give it
)

// Image is one image of wisbox's, or one that was made from it.
type Image struct {
	Name    string    `json:"image"` // "" where it has none
	ID      string    `json:"id"`
	State   State     `json:"state"`
	Size    int64     `json:"size_bytes"` // with what it shares with its base
	Created time.Time `json:"created_at"`
	// UsedBy are the sessions that were created with it.
	UsedBy []string `json:"used_by,omitempty"`
	// Kept says why Prune has not removed an old one.
	Kept string `json:"kept,omitempty"`
}

// List gives the images of wisbox's in the store, the newest first. sessions has
// the image of each session.
func List(ctx context.Context, s Store, sessions map[string]string) ([]Image, error) {
	out, seen := []Image{}, map[string]bool{}
	for _, label := range []string{labelInputs, labelRecipe} {
		found, err := s.Images(ctx, label)
		if err != nil {
			return nil, err
		}
		for _, info := range found {
			if !seen[info.ID] {
				seen[info.ID] = true
				out = append(out, imageOf(info, sessions))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return out, nil
}

func imageOf(info sandbox.ImageInfo, sessions map[string]string) Image {
	i := Image{Name: strings.Join(info.Tags, " "), ID: info.ID, State: stateOf(info), Size: info.Size, Created: info.Created}
	for session, image := range sessions {
		if slices.Contains(info.Tags, image) || image != "" && strings.HasPrefix(info.ID, image) {
			i.UsedBy = append(i.UsedBy, session)
		}
	}
	slices.Sort(i.UsedBy)
	return i
}

var ours = regexp.MustCompile(`^localhost/wisbox(-base)?:([0-9a-f]{12})$`)

// stateOf takes for ours only what has the one name that its own label begins.
func stateOf(info sandbox.ImageInfo) State {
	if len(info.Tags) != 1 {
		return Other
	}
	name := ours.FindStringSubmatch(info.Tags[0])
	label := labelInputs
	if name != nil && name[1] != "" {
		label = labelRecipe
	}
	switch {
	case name == nil || !strings.HasPrefix(info.Labels[label], name[2]):
		return Other
	case name[0] == Default || name[0] == debianRef():
		return Current
	}
	return Old
}

// Pruned is what Prune has done.
type Pruned struct {
	Removed []Image `json:"removed"`
	// Kept are the old ones that stay, and why.
	Kept   []Image `json:"kept"`
	DryRun bool    `json:"dry_run"`
}

// Prune removes the images that other versions of wisbox have made, but for those
// that a container or one of the sessions has. With dry it only tells which,
// and doesn't know of containers. It stops at the first error.
func Prune(ctx context.Context, s Store, sessions map[string]string, dry bool) (*Pruned, error) {
	found, err := List(ctx, s, sessions)
	if err != nil {
		return nil, err
	}
	p := &Pruned{Removed: []Image{}, Kept: []Image{}, DryRun: dry}
	slices.SortStableFunc(found, func(a, b Image) int { return isBase(a) - isBase(b) }) // bases after what stands on them
	for _, i := range found {
		if i.State != Old {
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

// remove removes one image, or says why it stays.
func (p *Pruned) remove(ctx context.Context, s Store, i Image) (kept string, err error) {
	switch {
	case len(i.UsedBy) > 0:
		return "a session was created with it", nil
	case isBase(i) > 0 && len(p.Kept) > 0: // it would lose its name and no bytes
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

func isBase(i Image) int {
	if strings.HasPrefix(i.Name, "localhost/wisbox-base:") {
		return 1
	}
	return 0
}
