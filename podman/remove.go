package podman

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

var removeTimeout = patience.For(30 * time.Second)

// remove removes a container by force and checks that it is gone: if Podman answers that something is busy, it may or
// may not have removed it.
func (b *Backend) remove(ctx context.Context, name string) error {
	query := url.Values{"force": {"true"}, "v": {"true"}, "ignore": {"true"}, "timeout": {"0"}}
	var err error
	for try := 1; try <= maxTries; try++ {
		err = b.do(ctx, request{method: http.MethodDelete, path: containerPath(name, ""), query: query, limit: removeTimeout})
		if hasStatus(err, http.StatusNotFound) {
			b.dropServiceLog(name)
			return nil
		}
		if says(err, "dependent containers") {
			if err := b.removeCompanions(ctx, name); err != nil {
				return err
			}
			continue
		}
		gone, checkErr := b.isGone(ctx, name)
		if gone {
			b.dropServiceLog(name)
			return nil
		}
		if err == nil {
			err = checkErr
		}
		if ctx.Err() != nil || !pause(ctx, 2*try) {
			break
		}
		_ = b.unpause(ctx, name) // some versions don't remove a paused container
	}
	if err == nil {
		return fail(sandbox.ErrUnavailable, nil, "podman reports that the container was removed, but it still exists; try again")
	}
	return explain(ctx, "remove the container", err)
}

func (b *Backend) isGone(ctx context.Context, name string) (bool, error) {
	err := b.do(ctx, request{method: http.MethodGet, path: containerPath(name, "/exists")})
	return isNotFound(err), err
}

func (b *Backend) unpause(ctx context.Context, name string) error {
	return b.do(ctx, request{method: http.MethodPost, path: containerPath(name, "/unpause")})
}
