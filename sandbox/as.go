package sandbox

// As finds an optional capability of a Backend, Sandbox, Runner or Process: an
// interface such as [Pauser] that it, or what it wraps, implements. A decorator
// has an Unwrap method that returns what it decorates.
func As[T any](v any) (T, bool) {
	for v != nil {
		if found, ok := v.(T); ok {
			return found, true
		}
		switch w := v.(type) {
		case interface{ Unwrap() Backend }:
			v = w.Unwrap()
		case interface{ Unwrap() Sandbox }:
			v = w.Unwrap()
		case interface{ Unwrap() Runner }:
			v = w.Unwrap()
		case interface{ Unwrap() Process }:
			v = w.Unwrap()
		default:
			v = nil
		}
	}
	var none T
	return none, false
}
