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

// optionsWithFlags returns options after AddFlags, which has put each flag into a section of the help.
func optionsWithFlags() *options {
	o := &options{}
	o.AddFlags(pflag.NewFlagSet("listproxy", pflag.ContinueOnError))
	return o
}

// TestSections: each flag of listproxy is in one section of the help.
func TestSections(t *testing.T) {
	sectionsOf := map[string]int{} // the number of sections by flag
	for _, section := range optionsWithFlags().sections.FlagSets {
		section.VisitAll(func(f *pflag.Flag) { sectionsOf[f.Name]++ })
	}
	newCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if n := sectionsOf[f.Name]; n != 1 {
			t.Errorf("--%s: got %d sections, want 1", f.Name, n)
		}
	})
}

// TestReference: docs/reference.md has the flags of listproxy by section, and the table of commands.
func TestReference(t *testing.T) {
	o := optionsWithFlags()
	var flags strings.Builder
	for i, name := range o.sections.Order {
		if i > 0 {
			flags.WriteString("\n")
		}
		fmt.Fprintf(&flags, "**%s**\n\n%s", strings.ToUpper(name[:1])+name[1:], flagTable(o.sections.FlagSets[name]))
	}
	reference.Check(t, referencePage, "flags", flags.String())
	reference.Check(t, referencePage, "commands", commandTable())
}

// commandTable returns a table of commands: name, flags, usage. Commands with subcommands and cobra's own are left out.
func commandTable() string {
	table := reference.Head("command", "flags", "")
	for _, cmd := range commands(newCommand()) {
		path, _, _ := strings.Cut(cmd.UseLine(), " [flags]") // names and arguments, like "listproxy policy check FILE"
		isOfCobra := strings.HasPrefix(path, "listproxy completion") || strings.HasPrefix(path, "listproxy help")
		if cmd.HasSubCommands() || isOfCobra {
			continue
		}
		var names []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, "`--"+f.Name+"`") })
		table += reference.Row("`"+path+"`", strings.Join(names, ", "), cmd.Short)
	}
	return table
}

// flagTable returns a table of flags: name and value, default, usage.
func flagTable(flags *pflag.FlagSet) string {
	table := reference.Head("flag", "default", "")
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		name := "`" + strings.TrimSpace("--"+f.Name+" "+value) + "`"
		table += reference.Row(name, formatDefault(f), usage)
	})
	return table
}

// formatDefault returns the default of a flag for the table. Durations have no zero units at the end: 15m for 15m0s.
func formatDefault(f *pflag.Flag) string {
	if f.Name == "cert-dir" {
		return "your cache directory" // it differs between machines
	}
	value := strings.Trim(f.DefValue, "[]") // lists have brackets
	if value == "" {
		return ""
	}
	if d, err := time.ParseDuration(value); err == nil && d != 0 {
		value = strings.Replace(d.String(), "m0s", "m", 1) // 1h0m0s to 1h0m
		value = strings.Replace(value, "h0m", "h", 1)      // 1h0m to 1h
	}
	return "`" + value + "`"
}
