package sandbox

import (
	"context"
	"time"
)

// ImageInfo describes an image in a backend's store.
type ImageInfo struct {
	ID      string            `json:"id"`   // the content's digest, without "sha256:"
	Tags    []string          `json:"tags"` // full names, localhost/wisbox:…
	Labels  map[string]string `json:"labels,omitempty"`
	Workdir string            `json:"workdir,omitempty"` // that programs begin in, by the image's maker
	Size    int64             `json:"size_bytes"`
	Created time.Time         `json:"created"`
}

// ImageStore is a [Backend] that can be asked for its images.
type ImageStore interface {
	// ImageInfo describes an image, or wraps [ErrNotFound].
	ImageInfo(ctx context.Context, ref string) (ImageInfo, error)
}

// ImagePuller is a [Backend] whose store can fetch images.
type ImagePuller interface {
	ImageStore
	// PullImage fetches an image from the registry that its name begins with, also
	// where the store has one of that name. It ends with ctx; what an ended pull has
	// fetched has no name. The error's text says what is wrong and what to do.
	PullImage(ctx context.Context, ref string, opts *PullOptions) error
}

// PullOptions of [ImagePuller]; nil and zero work.
type PullOptions struct {
	// Insecure takes a registry that speaks plain HTTP or whose certificate can't be
	// checked. Default: what Podman's registries.conf says of it.
	Insecure bool
	// Progress gets the lines in which Podman says how far it is; nil drops them.
	Progress func(line string)
}

// ImageBuild is what a store makes an image from.
type ImageBuild struct {
	// File is the Containerfile's path in the context; default Containerfile.
	File string
	// Tag is the image's full name, localhost/mine:1.
	Tag string
	// Args of the Containerfile, and labels of the image.
	Args, Labels map[string]string
	// Exclude are files of the context that no COPY sees.
	Exclude []string
	// Layers keeps the result of each step, and takes what an earlier build kept.
	Layers bool
	// NoNetwork gives RUN steps no network; else they have the host's.
	NoNetwork bool
	// Memory, in bytes, and CPUs bound each RUN step; 0 is no bound.
	Memory int64
	CPUs   float64
	// MaxDisk ends the build when the file system of the store has so many bytes less than
	// at its beginning, or less than the host needs; 0 is no bound.
	MaxDisk int64
	// Explain puts Podman's own words into the error: the Containerfile is the caller's.
	Explain bool
	// Progress gets the output line by line; nil drops it.
	Progress func(line string)
}
