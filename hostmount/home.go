package hostmount

import (
	"os"
	"strings"
)

// Home is the open host folder from which a mount was copied, for copying changes back. For a mount of a single file it
// is that file's folder, restricted to the file.
type Home struct {
	src    *source
	filter filter
	dst    string // of the workspace
}

// OpenHomes opens the sources of mounts again, by the rules of [Copy] and in order. The caller closes each.
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

// Dir returns the folder. The caller must not close it.
func (h *Home) Dir() *os.File { return h.src.tree.Dir() }

// Depth returns the mount's depth in the workspace: if two mounts cover a path, it belongs to the deeper one.
func (h *Home) Depth() int {
	if h.dst == "" {
		return 0
	}
	return 1 + strings.Count(h.dst, "/")
}

// Find converts a path of the workspace to one below Dir; ok is false if the mount doesn't cover it.
func (h *Home) Find(workspace string) (rel string, ok bool) {
	if h.src.file != "" {
		return h.src.file, workspace == h.dst
	}
	if h.dst == "" {
		return workspace, true
	}
	return strings.CutPrefix(workspace, h.dst+"/")
}

// LeavesOut returns the reason why the mount's globs exclude a path below Dir or one of its parent directories, "" if
// they don't.
func (h *Home) LeavesOut(rel string) Reason {
	for dir := parent(rel); dir != ""; dir = parent(dir) {
		if why := h.filter.refuses(dir, true); why != "" {
			return why
		}
	}
	return h.filter.refuses(rel, false)
}
