package sandbox

import (
	"context"
	"time"
)

// ImageInfo describes an image in a backend's store.
type ImageInfo struct {
	ID      string            `json:"id"`   // digest of the content, without "sha256:"
	Tags    []string          `json:"tags"` // full names, localhost/wisbox:…
	Labels  map[string]string `json:"labels,omitempty"`
	Workdir string            `json:"workdir,omitempty"` // directory in which its programs begin
	Size    int64             `json:"size_bytes"`
	// Platform that its programs are for, as linux/amd64; "" where that isn't known.
	Platform string    `json:"platform,omitempty"`
	Created  time.Time `json:"created"`
}

// ImageStore is a [Backend] that describes its images.
type ImageStore interface {
	// ImageInfo describes an image, or wraps [ErrNotFound].
	ImageInfo(ctx context.Context, ref string) (ImageInfo, error)
}

// ImagePuller is a [Backend] whose store can fetch images.
type ImagePuller interface {
	ImageStore
	// PullImage fetches an image from the registry that its name begins with, even if the
	// store has an image of that name. It ends with ctx; the layers that it has fetched then
	// have no name. The error's text describes the problem and what to do.
	PullImage(ctx context.Context, ref string, opts *PullOptions) error
}

// PullOptions are options of [ImagePuller]; nil and zero work.
type PullOptions struct {
	// Insecure allows a registry that speaks plain HTTP or whose certificate can't be
	// verified. Default: the setting of Podman's registries.conf.
	Insecure bool
	// Progress gets Podman's lines about its progress; nil drops them.
	Progress func(line string)
}

// ImageBuild is the input from which a store builds an image.
type ImageBuild struct {
	// File is the Containerfile's path in the context; default Containerfile.
	File string
	// Tag is the image's full name, localhost/mine:1.
	Tag string
	// Args are arguments of the Containerfile, and Labels those of the image.
	Args, Labels map[string]string
	// Exclude lists files of the context that COPY doesn't see.
	Exclude []string
	// Layers keeps the result of each step, and reuses the results of earlier builds.
	Layers bool
	// NoNetwork gives RUN steps no network instead of the host's.
	NoNetwork bool
	// Memory, in bytes, and CPUs bound each RUN step; 0 means no limit.
	Memory int64
	CPUs   float64
	// MaxDisk ends the build when it has taken so many bytes of the store's file system, or
	// when less is free than the host needs; 0 means no limit.
	MaxDisk int64
	// HereDocs says that the Containerfile has here-documents, which builders of before Podman 4.8
	// take for instructions.
	HereDocs bool
	// Explain includes Podman's own text in the error, since the Containerfile is the caller's.
	Explain bool
	// Progress gets the output line by line; nil drops it.
	Progress func(line string)
}
