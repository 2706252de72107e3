package policyfile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/policy"
)

// NewCheckCommand makes the command that says what a policy file means. It asks nobody.
func NewCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file, or print its rules",
		Args:  cli.WholeArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return errors.New("the name of the policy file is empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := read(args[0])
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

// writeRules writes what holds for each rule of a file, with what it inherits.
func writeRules(w io.Writer, file string, c *policy.Config) error {
	table := &strings.Builder{}
	fmt.Fprintln(table,
		"RESOURCE\tCACHE\tREPRESENTATIONS\tHISTORY\tBYTES\tIDLE\tLIMIT AT 0\tCONSISTENT\tWATCHES\tSAME FOR ALL\tNEWEST AS ANY\tFROM")
	for _, named := range InForce(c) {
		rule := named.Rule
		if line, ok := strings.CutPrefix(rule.Source, file+":"); ok {
			rule.Source = "line " + line
		}
		writeRule(table, named.Name, rule)
	}
	return cli.WriteTable(w, table.String())
}

func writeRule(w *strings.Builder, name string, r policy.Rule) {
	cells := []string{name, string(r.Cache), "-", "-", "-", "-", "-", "-", "-", "-", "-", r.Source}
	if r.Cache != policy.CacheNever {
		copy(cells[2:], []string{
			RepresentationsOf(r), HistoryOf(r), bytesOf(r), idleOf(r), string(r.LimitAtZero), consistentOf(r), watchesOf(r), sameOf(r),
			NewestAsAnyOf(r),
		})
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
