package wasm

import "github.com/wisbox/wisbox/evaltool/python/driver"

// parseAnswer parses an answer, or returns nil if it is invalid. Nothing interrupts the driver here.
func parseAnswer(raw []byte) *driver.Answer {
	a, err := driver.ParseAnswer(raw)
	if err != nil || a.Status == driver.StatusInterrupted {
		return nil
	}
	return &a
}
