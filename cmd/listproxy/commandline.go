package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	refuseUnknown(root)
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
	cmd.Args = func(c *cobra.Command, args []string) (err error) {
		if check != nil {
			err = check(c, args)
		}
		if found, rest, _ := c.Root().Find(args); c.Name() == "help" && (found == nil || len(rest) > 0) {
			// Cobra's own help command would print listproxy's help, and succeed.
			err = fmt.Errorf("unknown command %q", strings.Join(args, " "))
		}
		return usage(err)
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
