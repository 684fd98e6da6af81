package e2b

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/internal/registry"
)

// component is the clients' encodeURIComponent.
func component(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// TestMetadataComesBackAsTheClientHasIt: the client encodes names and values, builds a form of them, and puts that into
// a query.
func TestMetadataComesBackAsTheClientHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		form := url.Values{}
		for name, value := range want {
			form.Set(component(name), component(value))
		}
		query, err := url.ParseQuery("metadata=" + component(form.Encode()))
		require.NoError(t, err)
		got, err := metadataOf(query.Get("metadata"))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestPagesAreTheWholeList, each sandbox once and in order, even if many started at the same moment.
func TestPagesAreTheWholeList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		began := time.UnixMilli(1_700_000_000_000).UTC()
		all := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) registry.Record {
			return registry.Record{
				ID:      rapid.StringMatching(`[a-z0-9]{20}`).Draw(t, "id"),
				State:   rapid.SampledFrom([]registry.State{registry.Running, registry.Paused}).Draw(t, "state"),
				Started: began.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")) * time.Millisecond),
			}
		}), 0, 30, func(r registry.Record) string { return r.ID }).Draw(t, "all")
		query := url.Values{
			"order": {rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order")},
			"limit": {rapid.SampledFrom([]string{"", "1", "2", "7"}).Draw(t, "limit")},
			"state": {rapid.SampledFrom([]string{"", "running", "paused", "running,paused"}).Draw(t, "states")},
		}
		f, err := filterOf(query)
		require.NoError(t, err)
		want := 0
		for _, rec := range all {
			if f.takes(rec) {
				want++
			}
		}
		var got []registry.Record
		for range len(all) + 1 {
			f, err := filterOf(query)
			require.NoError(t, err)
			page, next := f.page(all)
			require.LessOrEqual(t, len(page), f.limit)
			got = append(got, page...)
			query.Set("nextToken", next)
			if next == "" {
				break
			}
		}
		require.Empty(t, query.Get("nextToken"), "the last page has no token")
		require.Len(t, got, want)
		for i := 1; i < len(got); i++ {
			if f.oldest {
				require.Less(t, position(got[i-1]), position(got[i]))
			} else {
				require.Greater(t, position(got[i-1]), position(got[i]))
			}
		}
	})
}

func TestTheStartThatAClientWasToldIsInTheListAfterIt(t *testing.T) {
	w := newWorld(t, nil, nil)
	id := w.create(keyA, `{}`).SandboxID
	var d detail
	w.ask(keyA, "GET", "/sandboxes/"+id, "", &d)
	var items []item
	w.ask(keyA, "GET", "/v2/sandboxes?startedAfter="+url.QueryEscape(d.StartedAt), "", &items)
	assert.Len(t, items, 1)
	res := w.ask(keyA, "GET", "/v2/sandboxes?limit=1", "", &items)
	assert.NotContains(t, res.Header, "X-Next-Token")
	w.create(keyA, `{}`)
	res = w.ask(keyA, "GET", "/v2/sandboxes?limit=1", "", &items)
	assert.NotEmpty(t, res.Header.Get("X-Next-Token"))
}
