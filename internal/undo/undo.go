// Package undo takes back what a constructor made before it failed.
package undo

import "slices"

// Steps take back what was made so far, the last thing first. The zero value is
// ready. Use it as:
//
//	var cleanup undo.Steps
//	defer cleanup.Run()
//	…                       // after each thing made: cleanup.Add(its removal)
//	cleanup.Keep()          // all is made: nothing is taken back
type Steps struct{ steps []func() }

// Add notes how to take back what was just made.
func (s *Steps) Add(step func()) { s.steps = append(s.steps, step) }

// Close is Add for what has a Close method, whose error nobody waits for.
func (s *Steps) Close(c interface{ Close() error }) { s.Add(func() { _ = c.Close() }) }

// Keep forgets the steps.
func (s *Steps) Keep() { s.steps = nil }

// Run takes everything back that was not kept.
func (s *Steps) Run() {
	for _, step := range slices.Backward(s.steps) {
		step()
	}
	s.steps = nil
}
