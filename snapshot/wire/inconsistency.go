package wire

import "fmt"

// InconsistencyError says that what the upstream sent cannot be true, or has an unknown form.
// Everything that was learned from this stream must be dropped.
type InconsistencyError struct{ what string }

func (e InconsistencyError) Error() string { return "the feed contradicts itself: " + e.what }

// Inconsistent returns an [InconsistencyError].
func Inconsistent(format string, args ...any) error {
	return InconsistencyError{what: fmt.Sprintf(format, args...)}
}
