package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is how wide help is where there is no terminal, and at most, in columns.
const helpWidth = 110

// showSections has a command, but not those below it, show its flags in sections. Those that cobra
// adds come last.
func showSections(root *cobra.Command, sections *cliflag.NamedFlagSets) {
	plain := (&cobra.Command{}).UsageFunc()
	for _, below := range root.Commands() {
		below.SetUsageFunc(plain)
	}
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		text := &strings.Builder{}
		fmt.Fprintf(text, "Usage:\n  %s [flags]\n  %s [command]\n\nCommands:\n", cmd.Name(), cmd.Name())
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				fmt.Fprintf(text, "  %-*s %s\n", below.NamePadding(), below.Name(), below.Short)
			}
		}
		out := cmd.OutOrStdout()
		for _, name := range sections.Order {
			title := strings.ToUpper(name[:1]) + name[1:]
			fmt.Fprintf(text, "\n%s flags:\n\n%s", title, usagesOf(sections.FlagSets[name], widthOf(out)))
		}
		others := pflag.NewFlagSet("other", pflag.ContinueOnError)
		for _, name := range []string{"help", "version"} {
			if flag := cmd.Flags().Lookup(name); flag != nil {
				others.AddFlag(flag)
			}
		}
		fmt.Fprintf(text, "\nOther flags:\n\n%s", usagesOf(others, widthOf(out)))
		fmt.Fprintf(text, "\nUse \"%s [command] --help\" for more about a command.\n", cmd.Name())
		_, err := io.WriteString(out, text.String())
		return err
	})
}

// usagesOf describes flags, with lines that are broken for this width only.
func usagesOf(flags *pflag.FlagSet, width int) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	flags.VisitAll(func(flag *pflag.Flag) {
		unbroken := *flag
		unbroken.Usage = strings.ReplaceAll(flag.Usage, "\n", " ")
		shown.AddFlag(&unbroken)
	})
	return shown.FlagUsagesWrapped(width)
}

// widthOf is how wide lines may be.
func widthOf(out io.Writer) int {
	columns := 0
	if file, ok := out.(*os.File); ok {
		columns, _, _ = term.GetSize(int(file.Fd())) // #nosec G115 -- a descriptor; 0 where there is no terminal
	}
	return min(cmp.Or(columns, helpWidth), helpWidth)
}
