package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// member is one entry of an archive.
type member struct {
	tar.Header
	body []byte
}

func membersOf(t testing.TB, archive []byte) (all []member) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err != nil {
			return all
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(r)
		require.NoError(t, err)
		all = append(all, member{*h, body.Bytes()})
	}
}

func packed(t testing.TB, all []member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range all {
		h := m.Header
		h.Size = int64(len(m.body))
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write(m.body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func plain(name string, body []byte) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Format: tar.FormatPAX}, body}
}

// sound returns a valid archive of a small workspace with two snapshots.
func sound(t testing.TB) []byte {
	t.Helper()
	b := newBench(t)
	b.write("d/f", strings.Repeat("v1 ", 100))
	b.create()
	b.write("d/g", "v2")
	var archive bytes.Buffer
	_, err := b.store.Export(context.Background(), &archive, map[string][]byte{"settings.json": []byte("{}")})
	require.NoError(t, err)
	return archive.Bytes()
}

// find finds an entry by the beginning of its name.
func find(all []member, prefix string) *member {
	for i := range all {
		if strings.HasPrefix(all[i].Name, prefix) {
			return &all[i]
		}
	}
	return nil
}

// packOf returns a pack of objects, each with a content and its alleged stored form.
func packOf(t testing.TB, objects ...[2][]byte) []byte {
	t.Helper()
	root := openRoot(t.(*testing.T), t.TempDir())
	w, err := newPack(root, newID())
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, w.add(hashOf(o[0]), len(o[0]), o[1]))
	}
	p, err := w.seal(false)
	require.NoError(t, err)
	require.NoError(t, p.file.Close())
	raw, err := root.ReadFile(p.name)
	require.NoError(t, err)
	return raw
}

func asIs(b []byte) [2][]byte { return [2][]byte{b, b} }

// sparse returns a tar entry in GNU's format 1.0 that claims to have size bytes and contains one.
func sparse(name string, size int64) []byte {
	var b bytes.Buffer
	records := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
	for k, v := range map[string]string{"GNU.sparse.name": name, "GNU.sparse.realsize": fmt.Sprint(size)} {
		line := fmt.Sprintf(" %s=%s\n", k, v)
		n := len(line) + 2
		for len(fmt.Sprint(n))+len(line) != n {
			n++
		}
		records += fmt.Sprint(n) + line
	}
	raw := rawHeader("PaxHeaders/x", 'x', int64(len(records)))
	b.Write(raw)
	b.WriteString(records)
	b.Write(make([]byte, -len(records)&511))
	sparseMap := fmt.Sprintf("1\n%d\n1\n", size-1)
	content := append([]byte(sparseMap), make([]byte, 512-len(sparseMap))...)
	content = append(content, 'x')
	b.Write(rawHeader("x", '0', int64(len(content))))
	b.Write(content)
	b.Write(make([]byte, -len(content)&511))
	return b.Bytes()
}

// oldSparse returns one in GNU tar's first format.
func oldSparse(name string, size int64) []byte {
	h := rawHeader(name, 'S', 1)
	copy(h[257:], "ustar  \x00")
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", size-1, 1))
	copy(h[483:], fmt.Sprintf("%011o\x00", size))
	sumHeader(h)
	return append(h, append([]byte{'x'}, make([]byte, 511)...)...)
}

func rawHeader(name string, kind byte, size int64) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000600\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sumHeader(h)
	return h
}

func sumHeader(h []byte) {
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
}

// before inserts raw bytes before the first entry with that prefix.
func before(t testing.TB, archive []byte, prefix string, raw []byte) []byte {
	t.Helper()
	all := membersOf(t, archive)
	for i := range all {
		if strings.HasPrefix(all[i].Name, prefix) {
			head, rest := packed(t, all[:i]), packed(t, all[i:])
			return append(append(head[:len(head)-tarEnd], raw...), rest...)
		}
	}
	t.Fatal("no such entry")
	return nil
}

func bomb(t testing.TB, size int) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return enc.EncodeAll(make([]byte, size), nil)
}

// hostile returns archives that must be refused, made from a valid one.
func hostile(t testing.TB) map[string][]byte {
	good := sound(t)
	change := func(do func(all []member) []member) []byte { return packed(t, do(membersOf(t, good))) }
	add := func(m ...member) []byte { return change(func(all []member) []member { return append(all, m...) }) }
	edit := func(prefix string, do func(m *member)) []byte {
		return change(func(all []member) []member { do(find(all, prefix)); return all })
	}
	record := func(do func(r map[string]any)) []byte {
		return edit("records/", func(m *member) {
			r := map[string]any{}
			require.NoError(t, json.Unmarshal(m.body, &r))
			do(r)
			var err error
			m.body, err = json.Marshal(r)
			require.NoError(t, err)
		})
	}
	pack := func(raw []byte) []byte { return add(plain("packs/"+newID()+packSuffix, raw)) }
	object := asIs([]byte("an object"))
	valid := packOf(t, object)
	resum := func(p []byte) []byte {
		p = bytes.Clone(p)
		n := int(binary.LittleEndian.Uint64(p[len(p)-24:]))
		index := p[len(p)-footerSize-n*indexEntry : len(p)-footerSize]
		sum := blake3.Sum256(index)
		copy(p[len(p)-16:], sum[:8])
		return p
	}
	future := ulid.MustNew(ulid.Timestamp(time.Now().Add(1000*time.Hour)), bytes.NewReader(make([]byte, 10)))
	out := map[string][]byte{
		"empty":                    nil,
		"no tar":                   []byte("no tar"),
		"cut in an entry":          good[:len(good)/2],
		"cut before its end":       good[:len(good)-tarEnd],
		"cut in its end":           good[:len(good)-tarEnd/2],
		"bytes behind its end":     append(bytes.Clone(good), 'x'),
		"a second archive behind":  append(bytes.Clone(good), good...),
		"zeros without end":        append(bytes.Clone(good), make([]byte, 2*maxZero)...),
		"PAX-sparse extra":         before(t, good, "packs/", sparse("extra/big", 1<<30)),
		"PAX-sparse pack":          before(t, good, "records/", sparse("packs/"+newID()+packSuffix, 2<<30)),
		"PAX-sparse record":        before(t, good, "records/", sparse("records/"+newID()+recordSuffix, 1<<20)),
		"old sparse pack":          before(t, good, "records/", oldSparse("packs/"+newID()+packSuffix, 2<<30)),
		"a sparse file's records":  add(member{tar.Header{Typeflag: tar.TypeReg, Name: "packs/" + newID() + packSuffix, PAXRecords: map[string]string{"VENDOR.x": "y"}}, valid}),
		"a directory":              add(member{Header: tar.Header{Typeflag: tar.TypeDir, Name: "packs/"}}),
		"a link":                   add(member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "packs/" + newID() + packSuffix, Linkname: "/etc/passwd"}}),
		"a hard link":              add(member{Header: tar.Header{Typeflag: tar.TypeLink, Name: "packs/" + newID() + packSuffix, Linkname: "archive.json"}}),
		"a device":                 add(member{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "packs/" + newID() + packSuffix}}),
		"another name":             add(plain("other", nil)),
		"a name that leads out":    add(plain("packs/../../x", valid)),
		"an absolute name":         add(plain("/packs/"+newID()+packSuffix, valid)),
		"a name below a pack":      add(plain("packs/"+newID()+packSuffix+"/x", valid)),
		"a pack named temporary":   add(plain("packs/"+tempPrefix+newID()+packSuffix, valid)),
		"a doubled pack":           change(func(all []member) []member { return append(all, *find(all, "packs/")) }),
		"a doubled record":         change(func(all []member) []member { return append(all, *find(all, "records/")) }),
		"a doubled head":           change(func(all []member) []member { return append(all, *find(all, archiveHead)) }),
		"a doubled extra":          change(func(all []member) []member { return append(all[:2], append([]member{all[1]}, all[2:]...)...) }),
		"an extra behind the rest": add(plain("extra/late", nil)),
		"too many extras": change(func(all []member) []member {
			for i := range maxExtras {
				all = append(all[:1], append([]member{plain(fmt.Sprintf("extra/x%d", i), nil)}, all[1:]...)...)
			}
			return all
		}),
		"extras that are too large": change(func(all []member) []member {
			return append(all[:1], append([]member{plain("extra/a", make([]byte, maxExtra)), plain("extra/b", []byte("x"))}, all[1:]...)...)
		}),
		"no head":              change(func(all []member) []member { return all[1:] }),
		"another head's field": edit(archiveHead, func(m *member) { m.body = bytes.Replace(m.body, []byte(`"head"`), []byte(`"x":1,"head"`), 1) }),
		"text behind the head": edit(archiveHead, func(m *member) { m.body = append(m.body, "{}"...) }),
		"a head that is not there": edit(archiveHead, func(m *member) {
			m.body = []byte(`{"format":1,"head":"` + newID() + `"}`)
		}),
		"no records":              change(func(all []member) []member { return all[:len(all)-2] }),
		"no packs":                change(func(all []member) []member { return append(all[:2:2], all[len(all)-2:]...) }),
		"a pack of garbage":       pack([]byte(strings.Repeat("garbage ", 100))),
		"an empty pack":           pack(nil),
		"a pack without an index": pack(valid[:len(valid)-5]),
		"a pack of bytes behind":  pack(append(bytes.Clone(valid), "more"...)),
		"a pack of bytes between": pack(func() []byte {
			at := len(packMagic) + objectHeader + len(object[0])
			p := append(append(bytes.Clone(valid[:at]), "gap!"...), valid[at:]...)
			binary.LittleEndian.PutUint64(p[len(p)-footerSize:], uint64(at+4))
			return p
		}()),
		"an index of another place": pack(func() []byte {
			p := bytes.Clone(valid)
			binary.LittleEndian.PutUint64(p[len(p)-footerSize-indexEntry+32:], 9)
			return resum(p)
		}()),
		"an object of another hash":    pack(packOf(t, [2][]byte{[]byte("what it says"), []byte("what it has!")})),
		"an object of no bytes":        pack(packOf(t, asIs(nil))),
		"an object that grows":         pack(packOf(t, [2][]byte{make([]byte, 1000), bomb(t, 64<<20)[:900]})),
		"an object that grows further": pack(packOf(t, [2][]byte{make([]byte, 100_000), bomb(t, 64<<20)})),
		"a record of nothing":          edit("records/", func(m *member) { m.body = []byte("{}") }),
		"text behind a record":         edit("records/", func(m *member) { m.body = append(m.body, "{}"...) }),
		"another record's field":       record(func(r map[string]any) { r["x"] = 1 }),
		"another record's id":          record(func(r map[string]any) { r["id"] = newID() }),
		"a record of no tree":          record(func(r map[string]any) { r["root"] = hashOf([]byte("no tree")).String() }),
		"a record of more files":       record(func(r map[string]any) { r["files"] = 7 }),
		"a record of other bytes":      record(func(r map[string]any) { r["bytes"] = -1 }),
		"a label of two lines":         record(func(r map[string]any) { r["label"] = "a\nb" }),
		"a path that is not printable": record(func(r map[string]any) { r["skipped"] = []string{"\x1b[2J"} }),
		"a record of the future": change(func(all []member) []member {
			m := find(all, "records/")
			id := strings.ToLower(future.String())
			old := strings.TrimSuffix(strings.TrimPrefix(m.Name, "records/"), recordSuffix)
			m.Name, m.body = "records/"+id+recordSuffix, bytes.ReplaceAll(m.body, []byte(old), []byte(id))
			return all
		}),
	}
	return out
}

func TestNothingIsTakenOfAHostileArchive(t *testing.T) {
	other := newBench(t)
	for name, archive := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			var most uint64
			stop := watchHeap(&most)
			_, err := load(other, archive)
			stop()
			assert.Equal(t, tool.Invalid, tool.KindOf(err), causeOf(err))
			assert.Less(t, most, uint64(100<<20))
			assertEmpty(t, other)
		})
	}
	_, err := load(other, sound(t))
	require.NoError(t, err, causeOf(err))
}

func assertEmpty(t testing.TB, b *bench) {
	t.Helper()
	assert.Empty(t, leftovers(t, b.dir))
	for _, d := range []string{"store/packs", "store/records", "ws"} {
		entries, err := os.ReadDir(filepath.Join(b.dir, d))
		require.NoError(t, err)
		assert.Empty(t, entries, d)
	}
}

// watchHeap records by how much the heap grows at most until stop.
func watchHeap(most *uint64) (stop func()) {
	usual := debug.SetGCPercent(20) // so that it measures live memory, with little garbage
	runtime.GC()
	runtime.GC() // the first one leaves what is in pools, such as the buffers of earlier tests
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*most = max(*most, m.HeapAlloc-min(m.HeapAlloc, before.HeapAlloc))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-ended; debug.SetGCPercent(usual) }
}

func TestAnArchiveIsNoLargerThanTheStoreMayBe(t *testing.T) {
	b := newBench(t)
	b.noise(t, "f", 2<<20)
	var archive bytes.Buffer
	_, err := b.store.Export(context.Background(), &archive, nil)
	require.NoError(t, err)
	small := benchWith(t, Limits{Store: 1 << 20})
	_, err = load(small, archive.Bytes())
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.ErrorContains(t, err, "1MiB")
	assertEmpty(t, small)

	full := newBench(t)
	full.store.opts.Room = func(context.Context) error { return tool.Errorf(tool.NoSpace, "the host is full") }
	_, err = load(full, archive.Bytes())
	assert.Equal(t, tool.NoSpace, tool.KindOf(err))
	assertEmpty(t, full)
}

// A few objects can name each other so that there are more entries than atoms.
func TestATreeThatNamesOneDirectoryManyTimesIsRefused(t *testing.T) {
	good := membersOf(t, sound(t))
	below := &entry{name: "f", kind: file}
	objects, raw := [][2][]byte{}, (&dir{entries: []entry{*below}}).encode(nil)
	for range 100 {
		objects = append(objects, asIs(bytes.Clone(raw)))
		h := hashOf(raw)
		raw = (&dir{entries: []entry{{name: "a", kind: folder, hash: h}, {name: "b", kind: folder, hash: h}}}).encode(nil)
	}
	objects = append(objects, asIs(raw))
	all := slices.Concat(good[:1], []member{plain("packs/"+newID()+packSuffix, packOf(t, objects...))})
	for _, m := range good {
		if !strings.HasPrefix(m.Name, "records/") {
			continue
		}
		r := map[string]any{}
		require.NoError(t, json.Unmarshal(m.body, &r))
		r["root"] = hashOf(raw).String()
		body, err := json.Marshal(r)
		require.NoError(t, err)
		m.body = body
		all = append(all, m)
	}
	b := newBench(t)
	_, err := load(b, packed(t, all))
	assert.Equal(t, tool.Invalid, tool.KindOf(err), causeOf(err))
	assertEmpty(t, b)
}

func FuzzLoad(f *testing.F) {
	f.Add(sound(f))
	f.Fuzz(func(t *testing.T, archive []byte) {
		b := benchWith(t, Limits{Store: 1 << 20, Bytes: 4 << 20, Entries: 1_000, Memory: 8 << 20, Objects: 1_000})
		if _, err := load(b, archive); err != nil {
			assert.NotEqual(t, tool.Internal, tool.KindOf(err), causeOf(err))
			assertEmpty(t, b)
			return
		}
		found, err := b.store.Verify(context.Background())
		require.NoError(t, err)
		assert.Empty(t, found)
	})
}

// TestABombIsRefusedByWhatItSays, before the first of its objects is unpacked.
func TestABombIsRefusedByWhatItSays(t *testing.T) {
	b := budget.New(t.Context(), budget.Limits{Out: 1 << 30})
	defer b.Close()
	var index []byte
	for i := range 17 {
		index = appendIndex(index, Hash{byte(i)}, location{length: maxObject, stored: 1})
	}
	assert.Equal(t, tool.Invalid, tool.KindOf(chargeAll(b, index)))
	assert.NoError(t, chargeAll(budget.New(t.Context(), budget.Limits{Out: 1 << 30}), index[:16*indexEntry]))
}

// TestAPackSaysHowManyObjectsItHas, so that an archive with too many is refused before they are in memory.
func TestAPackSaysHowManyObjectsItHas(t *testing.T) {
	b := newBench(t)
	for i := range 5 {
		b.write("f"+strconv.Itoa(i), strconv.Itoa(i))
	}
	var archive bytes.Buffer
	_, err := b.store.Export(t.Context(), &archive, nil)
	require.NoError(t, err)
	n := 0
	for name := range b.store.objects.packs {
		one, err := b.store.objects.check(budget.New(t.Context(), budget.Limits{Out: 1 << 30, Memory: 1 << 30}), name)
		require.NoError(t, err)
		n += one
	}
	assert.Len(t, b.store.objects.index, n)
	few := benchWith(t, Limits{Objects: n - 1})
	_, err = load(few, archive.Bytes())
	require.ErrorContains(t, err, "more pieces than the session's snapshots may have")
	assertEmpty(t, few)
	enough := benchWith(t, Limits{Objects: n})
	_, err = load(enough, archive.Bytes())
	require.NoError(t, err)
}
