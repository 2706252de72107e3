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

// TestReference: docs/reference.md has all flags and commands, as help has them: each flag is in one section.
func TestReference(t *testing.T) {
	o := defaultOptions()
	o.AddFlags(pflag.NewFlagSet("listproxy", pflag.ContinueOnError))
	var flags strings.Builder
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
	table := reference.Head("command", "flags", "")
	for _, cmd := range commands(newCommand()) {
		path, _, _ := strings.Cut(cmd.UseLine(), " [flags]")
		if cmd.HasSubCommands() || strings.HasPrefix(path, "listproxy completion") || strings.HasPrefix(path, "listproxy help") {
			continue
		}
		var names []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, "`--"+f.Name+"`") })
		table += reference.Row("`"+path+"`", strings.Join(names, ", "), cmd.Short)
	}
	reference.Check(t, referencePage, "flags", flags.String())
	reference.Check(t, referencePage, "commands", table)
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
