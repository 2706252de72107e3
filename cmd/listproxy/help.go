package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is the width of flags in help, in columns.
const helpWidth = 110

// showSections makes the help of root show its flags in sections. The help of its subcommands stays as it is. All
// subcommands and flags must have been added before.
func showSections(root *cobra.Command, sections *cliflag.NamedFlagSets) {
	// Cobra adds the commands help and completion only when root runs. They would inherit root's template.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	usual := root.UsageTemplate()
	for _, sub := range root.Commands() {
		sub.SetUsageTemplate(usual)
	}
	text := &strings.Builder{}
	for _, name := range sections.Order {
		title := strings.ToUpper(name[:1]) + name[1:]
		fmt.Fprintf(text, "%s flags:\n\n%s\n", title, sections.FlagSets[name].FlagUsagesWrapped(helpWidth))
	}
	text.WriteString("Other flags:\n\n  --help, --version")
	flags := "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(usual, flags, text.String(), 1))
}
