//go:build !linux

package agent

import "errors"

// check always fails: only Linux has containers.
func (s socket) check(int) error { return errors.New("the agent needs Linux") }
