package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is the width of help in columns where there is no terminal.
const helpWidth = 110

// showSections makes the help of root show its flags in sections. The help of the commands below it stays as it is.
func showSections(root *cobra.Command, sections *cliflag.NamedFlagSets) {
	defaultUsage := (&cobra.Command{}).UsageFunc()
	for _, below := range root.Commands() {
		below.SetUsageFunc(defaultUsage) // it would inherit root's
	}
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		text := &strings.Builder{}
		fmt.Fprintf(text, "Usage:\n  %s [flags]\n  %s [command]\n\nCommands:\n", cmd.Name(), cmd.Name())
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				fmt.Fprintf(text, "  %-*s %s\n", below.NamePadding(), below.Name(), below.Short)
			}
		}
		columns, _, _ := term.GetSize(int(os.Stdout.Fd())) // #nosec G115 -- a descriptor; 0 where there is no terminal
		for _, name := range sections.Order {
			usages := sections.FlagSets[name].FlagUsagesWrapped(cmp.Or(columns, helpWidth))
			fmt.Fprintf(text, "\n%s flags:\n\n%s", strings.ToUpper(name[:1])+name[1:], usages)
		}
		text.WriteString("\nOther flags:\n\n  --help, --version\n")
		_, err := io.WriteString(cmd.OutOrStdout(), text.String())
		return err
	})
}
