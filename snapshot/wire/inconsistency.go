package wire

import "fmt"

// InconsistencyError says that the upstream's lists or events contradict each other, or have an unknown form. The state that
// was made from them must be dropped.
type InconsistencyError struct{ message string }

func (e InconsistencyError) Error() string { return "the feed contradicts itself: " + e.message }

// Inconsistent returns an [InconsistencyError] with a message in the manner of fmt.Sprintf.
func Inconsistent(format string, args ...any) error {
	return InconsistencyError{message: fmt.Sprintf(format, args...)}
}
