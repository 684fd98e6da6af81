// Package undo collects the steps that a constructor undoes if a later one fails.
package undo

import "slices"

// Steps undo the work done so far, the last step first. The zero value is ready. Use it as:
//
//	var cleanup undo.Steps
//	defer cleanup.Run()
//	…                       // after each step: cleanup.Add(its undo)
//	cleanup.Keep()          // complete: nothing is undone
type Steps struct{ steps []func() }

// Add adds a function that undoes the last step.
func (s *Steps) Add(step func()) { s.steps = append(s.steps, step) }

// Close is like Add for a value with a Close method, whose error is ignored.
func (s *Steps) Close(c interface{ Close() error }) { s.Add(func() { _ = c.Close() }) }

// Keep forgets the steps.
func (s *Steps) Keep() { s.steps = nil }

// Run undoes the steps, unless Keep was called.
func (s *Steps) Run() {
	for _, step := range slices.Backward(s.steps) {
		step()
	}
	s.steps = nil
}
