package cli

import "errors"

// The exit codes.
const (
	ExitFailed = 1 // what was to be done was not, or not well
	ExitUsage  = 2 // the command line cannot be understood
)

// UsageError is a command line that cannot be understood.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// ExitCode is the process's exit code after an error.
func ExitCode(err error) int {
	if _, ok := errors.AsType[UsageError](err); ok {
		return ExitUsage
	}
	return ExitFailed
}
