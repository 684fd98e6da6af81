//go:build !linux

package podman

import (
	"net/url"

	"github.com/wisbox/wisbox/sandbox"
)

// boundSteps does nothing: builds run on Linux.
func (*Backend) boundSteps(*engine, url.Values, sandbox.ImageBuild, func()) (end func(), err error) {
	return func() {}, nil
}
