package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/reference"
)

const referencePage = "../../docs/reference.md"

// TestReference: docs/reference.md has the flags and commands of --help, and each flag is in one section.
func TestReference(t *testing.T) {
	o := defaultOptions()
	o.AddFlags(pflag.NewFlagSet("listproxy", pflag.ContinueOnError))
	var flags strings.Builder
	sections := map[string]int{} // by the name of a flag
	for i, name := range o.sections.Order {
		if i > 0 {
			flags.WriteString("\n")
		}
		section := o.sections.FlagSets[name]
		fmt.Fprintf(&flags, "**%s**\n\n%s", strings.ToUpper(name[:1])+name[1:], flagTable(section))
		section.VisitAll(func(f *pflag.Flag) { sections[f.Name]++ })
	}
	newCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if n := sections[f.Name]; n != 1 {
			t.Errorf("--%s is in %d sections, want 1", f.Name, n)
		}
	})
	reference.Check(t, referencePage, "flags", flags.String())
	reference.Check(t, referencePage, "commands", commandTable())
}

// commandTable returns a table with a row for each command that has no subcommands. Cobra's own commands are left out.
func commandTable() string {
	table := reference.Head("command", "flags", "")
	for _, cmd := range commands(newCommand()) {
		path, _, _ := strings.Cut(cmd.UseLine(), " [flags]")
		isCobras := strings.HasPrefix(path, "listproxy completion") || strings.HasPrefix(path, "listproxy help")
		if cmd.HasSubCommands() || isCobras {
			continue
		}
		var names []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, "`--"+f.Name+"`") })
		table += reference.Row("`"+path+"`", strings.Join(names, ", "), cmd.Short)
	}
	return table
}

// flagTable returns a table with a row for each flag.
func flagTable(flags *pflag.FlagSet) string {
	table := reference.Head("flag", "default", "")
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		name := "`" + strings.TrimSpace("--"+f.Name+" "+value) + "`"
		table += reference.Row(name, formatDefault(f), usage)
	})
	return table
}

// formatDefault returns the default of a flag for the table. Durations are as people write them: 15m for 15m0s.
func formatDefault(f *pflag.Flag) string {
	if f.Name == "cert-dir" {
		return "your cache directory" // it differs between machines
	}
	value := strings.Trim(f.DefValue, "[]") // lists have brackets
	if value == "" {
		return ""
	}
	if d, err := time.ParseDuration(value); err == nil && d != 0 {
		value = strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
	}
	return "`" + value + "`"
}
