package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Root makes cmd the command at the top; all commands must be in it by now. Cobra prints no errors then: main
// does. What a command refuses before it runs, in flags, Args and PreRunE, becomes a [UsageError].
//
// removed has the flags and commands of earlier versions, written as after the program's name ("--gone",
// "command --gone", "command gone"), and what to do instead.
func Root(cmd *cobra.Command, removed map[string]string) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			err = unlessRemoved(c, "--"+strings.TrimLeft(unknown.GetSpecifiedName(), "-"), removed, err)
		}
		return usage(err)
	})
	strict(cmd, removed)
}

// strict has cmd, and each command below it, refuse unknown commands and arguments, with a [UsageError].
func strict(cmd *cobra.Command, removed map[string]string) {
	check, prepare := cmd.Args, cmd.PreRunE
	if cmd.HasSubCommands() {
		check = cobra.NoArgs
	}
	if !cmd.Runnable() {
		// Without this, cobra shows help instead of what is wrong.
		cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	cmd.Args = func(c *cobra.Command, args []string) (err error) {
		if check != nil {
			err = check(c, args)
		}
		if found, rest, _ := c.Root().Find(args); c.Name() == "help" && (found == nil || len(rest) > 0) {
			err = fmt.Errorf("unknown command %q", strings.Join(args, " ")) // cobra's help shows that of listproxy
		}
		if err != nil && len(args) > 0 {
			err = unlessRemoved(c, args[0], removed, err)
		}
		return usage(err)
	}
	if prepare != nil {
		cmd.PreRunE = func(c *cobra.Command, args []string) error { return usage(prepare(c, args)) }
	}
	for _, sub := range cmd.Commands() {
		strict(sub, removed)
	}
}

// unlessRemoved returns err, or what to do instead if the word after cmd is one that was removed.
func unlessRemoved(cmd *cobra.Command, word string, removed map[string]string, err error) error {
	said := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()) + " " + word)
	if instead, gone := removed[said]; gone {
		return fmt.Errorf("%s is no longer there: %s", said, instead)
	}
	return err
}

// usage makes an error a [UsageError].
func usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}
