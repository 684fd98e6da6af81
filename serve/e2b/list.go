package e2b

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/registry"
)

// filter selects the sandboxes of a list, and where the page begins.
type filter struct {
	states   []registry.State
	metadata map[string]string
	after    time.Time
	template string
	oldest   bool // first
	limit    int
	from     string // the position of the last sandbox of the previous page
}

const maxPage = 100

func filterOf(query url.Values) (f filter, err error) {
	f.limit = maxPage
	if text := query.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 || f.limit > maxPage {
			return f, fail(http.StatusBadRequest, fmt.Sprintf("limit must be 1 to %d", maxPage))
		}
	}
	for state := range strings.SplitSeq(strings.Join(query["state"], ","), ",") {
		switch state := registry.State(state); state {
		case registry.Running, registry.Paused:
			f.states = append(f.states, state)
		case "":
		default:
			return f, fail(http.StatusBadRequest, "state must be running, paused, or both with a comma between them")
		}
	}
	if f.metadata, err = metadataOf(query.Get("metadata")); err != nil {
		return f, err
	}
	if text := query.Get("startedAfter"); text != "" {
		if f.after, err = time.Parse(time.RFC3339, text); err != nil {
			return f, fail(http.StatusBadRequest, "startedAfter must be a time as 2006-01-02T15:04:05.000Z")
		}
	}
	switch query.Get("order") {
	case "", "desc":
	case "asc":
		f.oldest = true
	default:
		return f, fail(http.StatusBadRequest, "order must be asc or desc")
	}
	f.template = query.Get("template")
	from, err := base64.RawURLEncoding.DecodeString(query.Get("nextToken"))
	if err != nil {
		return f, fail(http.StatusBadRequest, "nextToken is not from this server; use the one of the last answer")
	}
	f.from = string(from)
	return f, nil
}

// metadataOf parses the metadata that a sandbox must have. Clients encode keys and values before they encode the form,
// so text is still a form.
func metadataOf(text string) (map[string]string, error) {
	form, err := url.ParseQuery(text)
	if err != nil {
		return nil, errMetadata
	}
	all := map[string]string{}
	for key, values := range form {
		name, err := url.PathUnescape(key)
		if err != nil {
			return nil, errMetadata
		}
		value, err := url.PathUnescape(values[len(values)-1])
		if err != nil {
			return nil, errMetadata
		}
		all[name] = value
	}
	return all, nil
}

var errMetadata = fail(http.StatusBadRequest, "metadata must be a form of encoded keys and values")

func (f *filter) takes(rec registry.Record) bool {
	if len(f.states) > 0 && !slices.Contains(f.states, rec.State) || f.template != "" && f.template != rec.Template {
		return false
	}
	if rec.Started.Before(f.after) {
		return false
	}
	for name, value := range f.metadata {
		if got, ok := rec.Metadata[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// position orders sandboxes: by their start, then by their ID.
func position(rec registry.Record) string {
	return fmt.Sprintf("%016x %s", rec.Started.UnixMilli(), rec.ID)
}

// page returns the next page, and the key of its last sandbox if there are more.
func (f *filter) page(all []registry.Record) (page []registry.Record, next string) {
	all = slices.DeleteFunc(slices.Clone(all), func(rec registry.Record) bool { return !f.takes(rec) })
	slices.SortFunc(all, func(a, b registry.Record) int {
		if f.oldest {
			a, b = b, a
		}
		return strings.Compare(position(b), position(a))
	})
	if f.from != "" {
		all = slices.DeleteFunc(all, func(rec registry.Record) bool {
			if f.oldest {
				return position(rec) <= f.from
			}
			return position(rec) >= f.from
		})
	}
	if len(all) > f.limit {
		all = all[:f.limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(position(all[f.limit-1])))
	}
	return all, next
}

func (s *Server) list(c call) (int, any, error) {
	f, err := filterOf(c.r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	return s.listed(c, f)
}

// listRunning serves the older list, which has no states.
func (s *Server) listRunning(c call) (int, any, error) {
	f, err := filterOf(c.r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	f.states = []registry.State{registry.Running}
	return s.listed(c, f)
}

func (s *Server) listed(c call, f filter) (int, any, error) {
	var all []registry.Record
	for _, sandbox := range s.opts.Registry.Owned(c.key.Owner) {
		if rec := sandbox.Record(); rec.State == registry.Running || rec.State == registry.Paused {
			all = append(all, rec)
		}
	}
	page, next := f.page(all)
	if next != "" {
		c.w.Header().Set("X-Next-Token", next)
	}
	items := make([]item, len(page))
	for i, rec := range page {
		items[i] = s.item(rec)
	}
	return http.StatusOK, items, nil
}
