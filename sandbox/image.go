package sandbox

import "time"

// ImageInfo describes an image in a backend's store.
type ImageInfo struct {
	ID      string            `json:"id"`   // the content's digest, without "sha256:"
	Tags    []string          `json:"tags"` // full names, localhost/wisbox:…
	Labels  map[string]string `json:"labels,omitempty"`
	Size    int64             `json:"size_bytes"`
	Created time.Time         `json:"created"`
}
