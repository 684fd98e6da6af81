package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestALogShowsThreeDigitsOfATimeOrSo(t *testing.T) {
	for took, shown := range map[time.Duration]string{
		1065080 * time.Microsecond: "1.07s", 12345678 * time.Nanosecond: "12.35ms", 321 * time.Microsecond: "320µs",
		95*time.Second + 123*time.Millisecond: "1m35.4s", 0: "0s",
	} {
		assert.Equal(t, shown, rounded(took).String())
	}
}
