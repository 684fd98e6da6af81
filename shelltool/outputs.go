package shelltool

import (
	"cmp"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
)

// Bounds of the store: it keeps the newest outputs within both.
const (
	maxOutputs     = 64
	maxOutputBytes = 256 << 20
)

const (
	streamOut = "stdout"
	streamErr = "stderr"
)

var outputID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z]{26}$`) })

// newID returns a name that sorts by time.
func newID() string { return strings.ToLower(ulid.Make().String()) }

// outputs is the directory of outputs that were cut in results. Each call has the files ID.stdout
// and ID.stderr, and ID.json, which is written last and makes the output valid.
type outputs struct {
	root *os.Root // nil keeps nothing

	pruning sync.Mutex
}

// outputInfo is the content of ID.json: the total bytes of each stream.
type outputInfo struct {
	Stdout int64 `json:"stdout_bytes"`
	Stderr int64 `json:"stderr_bytes"`
}

func (i outputInfo) total(stream string) int64 {
	if stream == streamErr {
		return i.Stderr
	}
	return i.Stdout
}

func (o *outputs) create(id, stream string) (io.WriteCloser, error) {
	return o.root.OpenFile(id+"."+stream, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (o *outputs) commit(id string, stdout, stderr int64) error {
	raw, err := json.Marshal(outputInfo{Stdout: stdout, Stderr: stderr})
	if err != nil {
		return err
	}
	if err := o.root.WriteFile(id+".json", raw, 0o600); err != nil {
		return err
	}
	o.prune()
	return nil
}

func (o *outputs) remove(id string) {
	if o.root == nil {
		return
	}
	for _, suffix := range []string{"json", streamOut, streamErr} {
		_ = o.root.Remove(id + "." + suffix)
	}
}

// prune removes the oldest outputs, but never the newest, until both bounds hold.
func (o *outputs) prune() {
	o.pruning.Lock()
	defer o.pruning.Unlock()
	sizes := o.sizes()
	var count, bytes int64
	for _, id := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int { return cmp.Compare(b, a) }) {
		count, bytes = count+1, bytes+sizes[id]
		if count > 1 && (count > maxOutputs || bytes > maxOutputBytes) {
			o.remove(id)
		}
	}
}

func (o *outputs) sizes() map[string]int64 {
	sizes := map[string]int64{}
	entries, _ := fs.ReadDir(o.root.FS(), ".")
	for _, e := range entries {
		id, _, _ := strings.Cut(e.Name(), ".")
		if info, err := e.Info(); err == nil && outputID().MatchString(id) {
			sizes[id] += info.Size()
		}
	}
	return sizes
}

// info returns the sizes of an output, and whether it exists.
func (o *outputs) info(id string) (outputInfo, bool) {
	var info outputInfo
	if o.root == nil || !outputID().MatchString(id) {
		return info, false
	}
	raw, err := o.root.ReadFile(id + ".json")
	return info, err == nil && json.Unmarshal(raw, &info) == nil
}

// read returns at most limit bytes of a stream, and the number of its kept bytes. A stream without
// a file is empty.
func (o *outputs) read(id, stream string, offset int64, limit int) (data []byte, kept int64, err error) {
	f, err := o.root.Open(id + "." + stream)
	if os.IsNotExist(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err = io.ReadAll(io.NewSectionReader(f, offset, int64(limit)))
	return data, info.Size(), err
}
