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

// flagSections are the flags of listproxy, the few that matter first, as help and
// docs/operations.md have them.
var flagSections = []struct {
	name  string
	flags []string
}{
	{"main", []string{"kubeconfig", "config", "eager", "cache-bytes", "consistent-lists", "watches", "log-level"}},
	{"serving", []string{
		"bind-address", "secure-port", "tls-cert-file", "tls-private-key-file", "cert-dir", "cert-hosts", "tls-min-version",
		"tls-cipher-suites", "shutdown-delay-duration", "shutdown-timeout",
	}},
	{"proxy-url", []string{"connect-port", "connect-plain-http", "connect-hosts", "connect-ca-file", "connect-ca-key-file"}},
	{"upstream", []string{"upstream", "upstream-settle"}},
	{"authentication and authorization", []string{
		"client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names", "requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "review-ttl",
	}},
	{"memory", []string{
		"compression-cache-bytes", "history-window", "staleness-bound", "fresh-wait", "consistent-wait", "eager-jitter",
		"idle-timeout", "schema-quarantine", "self-check-interval",
	}},
	{"limit", []string{
		"max-requests-inflight", "max-long-running-requests", "max-inflight-bytes", "overload-wait", "max-connections",
		"max-body-bytes", "stall-timeout",
	}},
	{"auditing", []string{"audit-log-path", "audit-log-maxsize", "audit-log-maxbackup", "audit-log-maxage", "audit-log-compress"}},
	{"admin and log", []string{"admin-bind-address", "admin-hosts", "debug-pprof", "log-format"}},
}

// sectionsOf are the flags of a command by section. Those that have none come last.
func sectionsOf(flags *pflag.FlagSet) cliflag.NamedFlagSets {
	var sections cliflag.NamedFlagSets
	placed := map[string]bool{}
	add := func(section string, flag *pflag.Flag) {
		shown := *flag
		shown.Usage = strings.ReplaceAll(flag.Usage, "\n", " ") // lines are broken for the terminal
		set := sections.FlagSet(section)
		set.SortFlags = false
		set.AddFlag(&shown)
		placed[flag.Name] = true
	}
	for _, section := range flagSections {
		for _, name := range section.flags {
			if flag := flags.Lookup(name); flag != nil {
				add(section.name, flag)
			}
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !placed[flag.Name] {
			add("other", flag)
		}
	})
	return sections
}

// showSections has a command, but not those below it, show its flags in sections.
func showSections(root *cobra.Command) {
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
		sections := sectionsOf(cmd.Flags())
		for _, name := range sections.Order {
			title := strings.ToUpper(name[:1]) + name[1:]
			fmt.Fprintf(text, "\n%s flags:\n\n%s", title, sections.FlagSets[name].FlagUsagesWrapped(widthOf(out)))
		}
		fmt.Fprintf(text, "\nUse \"%s [command] --help\" for more about a command.\n", cmd.Name())
		_, err := io.WriteString(out, text.String())
		return err
	})
}

// widthOf is how wide lines may be.
func widthOf(out io.Writer) int {
	columns := 0
	if file, ok := out.(*os.File); ok {
		columns, _, _ = term.GetSize(int(file.Fd())) // #nosec G115 -- a descriptor; 0 where there is no terminal
	}
	return min(cmp.Or(columns, helpWidth), helpWidth)
}
