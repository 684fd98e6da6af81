package hostmount

import "testing"

// FoldNames makes names compare as on a case-insensitive file system.
func FoldNames(t *testing.T) {
	usual := folds
	folds = true
	t.Cleanup(func() { folds = usual })
}
