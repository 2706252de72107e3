package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/reference"
)

const referencePage = "../../docs/reference.md"

// TestReference: docs/reference.md has all flags and commands, as help has them: each flag is in one section.
func TestReference(t *testing.T) {
	o := defaultOptions()
	o.AddFlags(pflag.NewFlagSet("listproxy", pflag.ContinueOnError))
	var flags, commands strings.Builder
	for i, name := range o.sections.Order {
		if i > 0 {
			flags.WriteString("\n")
		}
		fmt.Fprintf(&flags, "**%s**\n\n%s", strings.ToUpper(name[:1])+name[1:], flagTable(o.sections.FlagSets[name]))
	}
	newCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if n := strings.Count(flags.String(), "| `--"+f.Name+"`") + strings.Count(flags.String(), "| `--"+f.Name+" "); n != 1 {
			t.Errorf("--%s is in %d sections", f.Name, n)
		}
	})
	commands.WriteString(reference.Head("command", "flags", ""))
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			switch {
			case below.Name() == "completion", below.Name() == "help":
			case below.HasSubCommands():
				add(below)
			default:
				var names []string
				below.LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, "`--"+f.Name+"`") })
				path, _, _ := strings.Cut(below.UseLine(), " [flags]")
				commands.WriteString(reference.Row("`"+path+"`", strings.Join(names, ", "), below.Short))
			}
		}
	}
	add(newCommand())
	reference.Check(t, referencePage, "flags", flags.String())
	reference.Check(t, referencePage, "commands", commands.String())
}

// flagTable has a row for each flag.
func flagTable(flags *pflag.FlagSet) string {
	table := reference.Head("flag", "default", "")
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		def := strings.Trim(f.DefValue, "[]")
		if d, err := time.ParseDuration(def); err == nil && d != 0 {
			def = strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
		}
		if def != "" {
			def = "`" + def + "`"
		}
		if f.Name == "cert-dir" {
			def = "your cache directory"
		}
		table += reference.Row("`"+strings.TrimSpace("--"+f.Name+" "+value)+"`", def, usage)
	})
	return table
}
