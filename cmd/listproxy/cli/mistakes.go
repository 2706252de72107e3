package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Root makes cmd, which has all its commands by now, the command at the top. What goes wrong in it,
// and below it, is an error that main writes, and that [ExitCode] knows: all that a command refuses
// before it runs, in flags, Args and PreRunE, is a UsageError.
//
// removed has what earlier versions had, a flag or a command, written as after the program's name
// ("--gone", "command --gone", "command gone"), and what to do instead.
func Root(cmd *cobra.Command, removed map[string]string) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SuggestionsMinimumDistance = 2
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		unknown, ok := errors.AsType[*pflag.NotExistError](err)
		if !ok {
			return UsageError{err}
		}
		flag := "--" + strings.TrimLeft(unknown.GetSpecifiedName(), "-")
		if instead, gone := removed[below(c, flag)]; gone {
			return UsageError{fmt.Errorf("%s is no longer there: %s", flag, instead)}
		}
		return UsageError{fmt.Errorf("%w: --help lists the flags", err)}
	})
	strict(cmd, removed)
}

// strict makes what cmd, or a command below it, refuses before it runs a UsageError.
func strict(cmd *cobra.Command, removed map[string]string) {
	check, prepare := cmd.Args, cmd.PreRunE
	if !cmd.Runnable() {
		// Without this, cobra shows help instead of what is wrong.
		cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	cmd.Args = func(c *cobra.Command, args []string) error {
		var err error
		switch {
		case len(args) > 0 && c.HasSubCommands():
			err = noSuchCommand(c, args[0], removed)
		case len(args) > 0 && c.Name() == "help":
			if found, rest, _ := c.Root().Find(args); found == nil || len(rest) > 0 {
				err = noSuchCommand(c.Root(), args[0], removed)
			}
		case check != nil:
			err = check(c, args)
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

func usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// below is a word after a command, as it is written after the program's name.
func below(cmd *cobra.Command, word string) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()) + " " + word)
}

// noSuchCommand refuses what is no command below cmd, and says which one was probably meant.
func noSuchCommand(cmd *cobra.Command, name string, removed map[string]string) error {
	if instead, gone := removed[below(cmd, name)]; gone {
		return fmt.Errorf("%s is no longer there: %s", below(cmd, name), instead)
	}
	if meant := cmd.SuggestionsFor(name); len(meant) > 0 {
		return fmt.Errorf("there is no command %q: did you mean %s?", name, meant[0])
	}
	return fmt.Errorf("there is no command %q: --help lists the commands", name)
}

// WholeArgs requires n arguments. If there are none, it shows how the command is used.
func WholeArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s takes %d arguments, not %d\n\n%s", cmd.CommandPath(), n, len(args), strings.TrimSpace(cmd.UsageString()))
	}
}
