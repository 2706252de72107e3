package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
)

// newPolicyCommand returns the command for policy files. Alone it prints its help.
func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand())
	return cmd
}

// newPolicyCheckCommand returns the command that checks a policy file and prints its rules. It contacts no cluster.
func newPolicyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file, or print its rules",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readPolicy(args[0])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n\n", args[0]); err != nil {
				return err
			}
			return writeRules(cmd.OutOrStdout(), args[0], c)
		},
	}
}

// writeRules writes a table of the rules of a file, with the settings that they inherit, and then the settings of all
// other resources.
func writeRules(w io.Writer, file string, c *policy.Config) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tCACHE\tHISTORY\tLIMIT AT 0\tCONSISTENT\tWATCHES\tFROM")
	for _, target := range c.Targets() {
		writeRule(table, file, target.String(), c.RuleFor(target.Group, target.Resource))
	}
	writeRule(table, file, "everything else", c.Defaults())
	// These resources have a built-in rule, which counts unless the file has a rule for them.
	for _, builtIn := range []schema.GroupResource{
		{Resource: "secrets"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"},
	} {
		if rule := c.RuleFor(builtIn.Group, builtIn.Resource); rule.Source == policy.BuiltIn {
			writeRule(table, file, builtIn.String(), rule)
		}
	}
	return table.Flush()
}

// writeRule writes one line of the table. If a setting is left to a flag, its column has the name of the flag. A "-" means
// that the setting has no effect, since the resource is never kept in memory.
func writeRule(table *tabwriter.Writer, file, name string, r policy.Rule) {
	history, limitAtZero, consistent, watches := "-", "-", "-", "-"
	if r.Cache != policy.CacheNever {
		history = "--history-window"
		if r.HistoryWindow > 0 {
			history = r.HistoryWindow.String()
		}
		limitAtZero = string(r.LimitAtZero)
		consistent = cmp.Or(string(r.ConsistentLists), "--consistent-lists")
		watches = "--watches"
		if r.Watches != nil {
			watches = strconv.FormatBool(*r.Watches)
		}
	}
	source := strings.TrimPrefix(r.Source, file+": ") // the place in the file
	fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.Cache, history, limitAtZero, consistent, watches, source)
}
