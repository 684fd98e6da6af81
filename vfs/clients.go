package vfs

import (
	"context"
	"hash/fnv"
	"regexp"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/tool"
)

// clientID identifies a client of the session, for the option ReadBeforeWrite.
type clientID uint64

// everybody is in records of versions of wisbox that didn't distinguish clients.
const everybody clientID = 1

// command matches the names of callers that are one command of wisbox. All of them are one client: who types the
// second command knows what the first one has shown.
var command = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^wisbox[a-z-]*\[[0-9]+\]$`) })

func clientOf(ctx context.Context) clientID {
	id := tool.Client(ctx)
	if command().MatchString(id) {
		id = "wisbox"
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(id))
	return clientID(max(sum.Sum64(), uint64(everybody)+1))
}

// maxClients bounds a record. A client that is dropped must read the file again.
const maxClients = 8

// clients have seen one state of a file, the latest last. A value never changes, since records share it.
type clients []clientID

func (c clients) has(who clientID) bool {
	return slices.Contains(c, who) || slices.Contains(c, everybody)
}

func (c clients) and(others ...clientID) clients {
	out := slices.Clone(c)
	for _, who := range others {
		if !slices.Contains(out, who) {
			out = append(out, who)
		}
	}
	return out[max(len(out)-maxClients, 0):]
}
