package wasm

import "github.com/wisbox/wisbox/evaltool/python/driver"

// parseAnswer reads an answer; nil is that it makes no sense. Nothing interrupts the
// driver here.
func parseAnswer(raw []byte) *driver.Answer {
	a, err := driver.ParseAnswer(raw)
	if err != nil || a.Status == driver.StatusInterrupted {
		return nil
	}
	return &a
}
