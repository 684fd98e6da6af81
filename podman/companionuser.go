package podman

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/internal/undo"
)

// dirOwner returns the image's user, to whom its writable directories must belong: by default, a tmpfs
// belongs to root. The name of a user is looked up in the image's own list, for which a container is
// needed.
func (s *Sandbox) dirOwner(ctx context.Context, spec companion) (string, error) {
	image, err := s.b.inspectImage(ctx, spec.image)
	if err != nil {
		return "", explain(ctx, "look at the image", err)
	}
	user, group, _ := strings.Cut(image.Config.User, ":")
	if user == "" || user == "root" || len(spec.dirs) == 0 {
		return "", nil
	}
	if _, err := strconv.ParseUint(user, 10, 31); err != nil {
		list, err := s.passwd(ctx, spec)
		if err != nil {
			return "", err
		}
		if user, group = lookUp(list, user); user == "" {
			name, _, _ := strings.Cut(image.Config.User, ":")
			return "", noUser(spec.image, "user", name, nil)
		}
	}
	if _, err := strconv.ParseUint(group, 10, 31); err != nil {
		group = "0"
	}
	return ",uid=" + user + ",gid=" + group, nil
}

// passwd returns the image's /etc/passwd, or "" if it has none.
func (s *Sandbox) passwd(ctx context.Context, spec companion) (string, error) {
	var looking undo.Steps
	defer looking.Run()
	if err := s.postCompanion(ctx, spec, &looking); err != nil {
		return "", err
	}
	archive := &capped64K{}
	err := s.b.do(ctx, request{method: http.MethodGet, path: containerPath(spec.name, "/archive"), query: url.Values{"path": {"/etc/passwd"}}, sink: archive})
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", notStarted(spec.image, explain(ctx, "read the image's users", err))
	}
	r := tar.NewReader(&archive.Buffer)
	if _, err := r.Next(); err != nil {
		return "", nil
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", nil
	}
	return string(text), nil
}

// capped64K keeps the first 64 KiB of its writes.
type capped64K struct{ bytes.Buffer }

// Write implements [io.Writer].
func (c *capped64K) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), max(0, 64<<10-c.Len()))])
	return len(p), nil
}

// lookUp finds the IDs of a user in a list in the form of /etc/passwd; "" means not found.
func lookUp(list, name string) (user, group string) {
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		if _, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			return fields[2], fields[3]
		}
	}
	return "", ""
}
