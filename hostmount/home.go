package hostmount

import (
	"os"
	"strings"
)

// Home is the folder of the host that a mount was copied from, open for what comes back.
// A mount of one file has that file's folder, and the file alone in it.
type Home struct {
	src    *source
	filter filter
	dst    string // of the workspace
}

// OpenHomes opens the sources of mounts anew, by the rules of [Copy], in their order.
// Close each.
func OpenHomes(mounts []Mount, opts *Options) ([]*Home, error) {
	o := opts.withDefaults()
	for i, m := range mounts {
		if err := m.check(mountName(i)); err != nil {
			return nil, err
		}
	}
	roots, err := openRoots(mounts, o)
	if err != nil {
		return nil, err
	}
	defer closeRoots(roots)
	var homes []*Home
	for i, m := range mounts {
		h, err := openHome(m, roots, mountName(i))
		if err != nil {
			CloseHomes(homes)
			return nil, err
		}
		homes = append(homes, h)
	}
	return homes, nil
}

func openHome(m Mount, roots []*allowed, at string) (*Home, error) {
	src, err := openSource(m, roots, at)
	if err != nil {
		return nil, err
	}
	h := &Home{src: src}
	if h.filter, err = m.filter(at); err == nil {
		h.dst, err = (&plan{mount: m, at: at, src: src}).destination()
	}
	if err != nil {
		src.close()
		return nil, err
	}
	return h, nil
}

// CloseHomes closes them all.
func CloseHomes(homes []*Home) {
	for _, h := range homes {
		h.src.close()
	}
}

// Dir is the folder. The caller must not close it.
func (h *Home) Dir() *os.File { return h.src.tree.Dir() }

// Depth is how deep in the workspace the mount begins: of two mounts that cover a
// path the deeper one has it.
func (h *Home) Depth() int {
	if h.dst == "" {
		return 0
	}
	return 1 + strings.Count(h.dst, "/")
}

// Find is where a path of the workspace lies below Dir; ok is false where the mount
// doesn't cover it.
func (h *Home) Find(workspace string) (rel string, ok bool) {
	if h.src.file != "" {
		return h.src.file, workspace == h.dst
	}
	if h.dst == "" {
		return workspace, true
	}
	return strings.CutPrefix(workspace, h.dst+"/")
}

// LeavesOut says why the mount's globs keep a path below Dir out, or a directory that it
// lies in; "" where they don't.
func (h *Home) LeavesOut(rel string) Reason {
	for dir := parent(rel); dir != ""; dir = parent(dir) {
		if why := h.filter.refuses(dir, true); why != "" {
			return why
		}
	}
	return h.filter.refuses(rel, false)
}
