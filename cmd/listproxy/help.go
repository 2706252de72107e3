package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is the column at which the help of flags is wrapped.
const helpWidth = 110

// cobraFlags is the part of cobra's usage template that prints flags. (TestHelp fails if cobra changes it.)
const cobraFlags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"

// showSections makes the help of root show its flags in sections. The help of its subcommands stays as it is. showSections must
// be called after all subcommands and flags have been added.
func showSections(root *cobra.Command, sections *cliflag.NamedFlagSets) {
	defaultTemplate := root.UsageTemplate()
	// Without these calls, cobra would add the commands help and completion only after the loop below, when root runs.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, sub := range root.Commands() {
		sub.SetUsageTemplate(defaultTemplate) // so that it does not inherit root's
	}
	text := &strings.Builder{}
	for _, name := range sections.Order {
		title := strings.ToUpper(name[:1]) + name[1:]
		fmt.Fprintf(text, "%s flags:\n\n%s\n", title, sections.FlagSets[name].FlagUsagesWrapped(helpWidth))
	}
	text.WriteString("Other flags:\n\n  --help, --version")
	root.SetUsageTemplate(strings.Replace(defaultTemplate, cobraFlags, text.String(), 1))
}
