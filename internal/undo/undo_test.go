package undo_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/undo"
)

func TestTheLastThingMadeIsTakenBackFirst(t *testing.T) {
	var order []int
	var s undo.Steps
	for i := range 3 {
		s.Add(func() { order = append(order, i) })
	}
	s.Run()
	s.Run()
	assert.Equal(t, []int{2, 1, 0}, order, "once")
}

func TestWhatIsKeptIsNotTakenBack(t *testing.T) {
	var s undo.Steps
	s.Add(func() { t.Error("taken back") })
	s.Keep()
	s.Run()
}
