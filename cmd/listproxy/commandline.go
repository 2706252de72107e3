package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitFailed = 1 // the command failed
	exitUsage  = 2 // the command line cannot be understood
)

// usageError is a command line that cannot be understood.
type usageError struct{ error }

// exitCode returns the process's exit code after an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// markUsageErrors makes all commands of root refuse unknown commands and arguments. Every error that a command
// returns before it runs (from its flags, Args or PreRunE) becomes a [usageError]. Errors are printed by main,
// and not by cobra.
func markUsageErrors(root *cobra.Command) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(withHelp(err)) })
	refuseUnknown(root)
}

// withHelp adds the help of a flag to the error about a value that the flag does not take.
func withHelp(err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		_, help := pflag.UnquoteUsage(invalid.GetFlag())
		return fmt.Errorf("%w; --%s: %s", err, invalid.GetFlag().Name, help)
	}
	return err
}

// refuseUnknown makes cmd, and each command below it, refuse unknown commands and arguments with a [usageError].
func refuseUnknown(cmd *cobra.Command) {
	check, prepare := cmd.Args, cmd.PreRunE
	if cmd.HasSubCommands() {
		check = cobra.NoArgs
	}
	if !cmd.Runnable() {
		// Cobra checks the arguments of commands that can run, and shows help for all others.
		cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error { return usage(check(c, args)) }
	}
	if prepare != nil {
		cmd.PreRunE = func(c *cobra.Command, args []string) error { return usage(prepare(c, args)) }
	}
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
}

// usage wraps an error in a [usageError]; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}
