package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Root makes cmd the command at the top; all commands must be in it by now. Cobra prints no errors then: main
// does. What a command refuses before it runs, in flags, Args and PreRunE, becomes a [UsageError].
func Root(cmd *cobra.Command) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	strict(cmd)
}

// strict has cmd, and each command below it, refuse unknown commands and arguments, with a [UsageError].
func strict(cmd *cobra.Command) {
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
		return usage(err)
	}
	if prepare != nil {
		cmd.PreRunE = func(c *cobra.Command, args []string) error { return usage(prepare(c, args)) }
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// usage makes an error a [UsageError].
func usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}
