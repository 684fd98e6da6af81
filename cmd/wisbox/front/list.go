//go:build linux

package main

import (
	"bytes"
	"context"
	"path/filepath"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/sessions"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/overlay"
)

// quickList is `wisbox ls`.
func quickList() (code int, done bool) {
	all, ok := entries()
	if !ok {
		return 0, false
	}
	var out bytes.Buffer
	sessions.Print(&out, sessions.Rows(all))
	return printed(out.Bytes())
}

// entries returns the sessions of this machine.
func entries() ([]overlay.Entry, bool) {
	if !onThisMachine() {
		return nil, false
	}
	store, err := overlay.OpenStore("")
	if err != nil {
		return nil, false
	}
	defer store.Close()
	all, err := store.List(context.Background())
	var locks hold.Locks
	for i, e := range all {
		if e.InUse && locks.Alone(filepath.Join(store.Path(), "sessions", e.ID)) {
			all[i].InUse, all[i].Held = false, true
		}
	}
	return all, err == nil
}
