package wire

import "fmt"

// InconsistencyError says that what the upstream sent cannot be true, or has no form that is known.
// What was learned from it is not to be trusted any more.
type InconsistencyError struct{ what string }

func (e InconsistencyError) Error() string { return "the feed contradicts itself: " + e.what }

// Inconsistent returns a poisonError.
func Inconsistent(format string, args ...any) error {
	return InconsistencyError{what: fmt.Sprintf(format, args...)}
}
