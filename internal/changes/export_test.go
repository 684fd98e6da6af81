package changes

import (
	"os"
	"testing"
)

// FoldNames makes names count as on a file system that folds them; list returns a directory's names
// as written.
func FoldNames(t testing.TB, list func(dir *os.File) (map[string]bool, error)) {
	usual, own := folds, namesOf
	folds = true
	if list != nil {
		namesOf = list
	}
	t.Cleanup(func() { folds, namesOf = usual, own })
}
