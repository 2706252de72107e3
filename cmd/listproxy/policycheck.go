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

// newPolicyCommand returns the command about policy files.
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

// writeRules writes each rule of a file with the settings that it inherits, then the settings of all other resources.
func writeRules(w io.Writer, file string, c *policy.Config) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tCACHE\tHISTORY\tLIMIT AT 0\tCONSISTENT\tWATCHES\tFROM")
	for _, t := range c.Targets() {
		writeRule(table, file, t.String(), c.RuleFor(t.Group, t.Resource))
	}
	writeRule(table, file, "everything else", c.Defaults())
	for _, t := range []schema.GroupResource{
		{Resource: "secrets"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"},
	} {
		if rule := c.RuleFor(t.Group, t.Resource); rule.Source == policy.BuiltIn {
			writeRule(table, file, t.String(), rule)
		}
	}
	return table.Flush()
}

func writeRule(table *tabwriter.Writer, file, name string, r policy.Rule) {
	history, atZero, consistent, watches := "-", "-", "-", "-"
	if r.Cache != policy.CacheNever {
		history, atZero = "--history-window", string(r.LimitAtZero)
		consistent, watches = cmp.Or(string(r.ConsistentLists), "--consistent-lists"), "--watches"
		if r.HistoryWindow > 0 {
			history = r.HistoryWindow.String()
		}
		if r.Watches != nil {
			watches = strconv.FormatBool(*r.Watches)
		}
	}
	source := strings.TrimPrefix(r.Source, file+": ")
	fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.Cache, history, atZero, consistent, watches, source)
}
