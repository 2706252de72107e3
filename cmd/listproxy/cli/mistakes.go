package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
)

// Root makes cmd the command at the top: what goes wrong in it, and below it, is an error that main
// writes, with what was probably meant.
func Root(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return UsageError{suggestFlag(c.Flags(), err)} })
	return cmd
}

// suggestFlag adds to the error about an unknown flag which one was probably meant.
func suggestFlag(fs *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if meant := policy.Similar(strings.TrimLeft(unknown.GetSpecifiedName(), "-"), names); meant != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, meant)
	}
	return fmt.Errorf("%w: --help lists them", err)
}

// NoSuchCommand refuses what is no command, and says which one was probably meant.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return UsageError{fmt.Errorf("there is no command %q: did you mean %s?", args[0], meant[0])}
	}
	return UsageError{fmt.Errorf("there is no command %q: --help lists them", args[0])}
}

// UsageArgs makes a mistake in arguments one of the command line.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return UsageError{err}
		}
		return nil
	}
}

// WholeArgs requires n arguments. If there are none, it shows how the command is used.
func WholeArgs(n int) cobra.PositionalArgs {
	return UsageArgs(func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s takes %d arguments, not %d\n\n%s", cmd.CommandPath(), n, len(args), strings.TrimSpace(cmd.UsageString()))
	})
}
