package wire

import "fmt"

// InconsistencyError says that the upstream's list or stream contradicts itself, or has an unknown form. Everything that
// was learned from it must be dropped.
type InconsistencyError struct{ what string }

func (e InconsistencyError) Error() string { return "the feed contradicts itself: " + e.what }

// Inconsistent returns an [InconsistencyError].
func Inconsistent(format string, args ...any) error {
	return InconsistencyError{what: fmt.Sprintf(format, args...)}
}
