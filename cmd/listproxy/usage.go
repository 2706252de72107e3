package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitFailed = 1 // what was to be done was not, or not well
	exitUsage  = 2 // the command line cannot be understood
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode is the process's exit code after an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// usageArgs makes a mistake in arguments one of the command line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
