package snapshot

import "github.com/wisbox/wisbox/internal/beneath"

var removeAll = beneath.RemoveAll

// causeOf is what a log would show.
func causeOf(err error) string {
	text := ""
	for ; err != nil; err = unwrap(err) {
		text += err.Error() + " <- "
	}
	return text
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}
