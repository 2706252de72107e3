package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// maxPolicyFile is more than ParseConfig takes, so that it says so.
const maxPolicyFile = 2 << 20

// readPolicyFlag reads the file that --config names; if the flag is not given, it is the default
// policy. An empty name is a variable that was not set, and not somebody's wish for the default.
func readPolicyFlag(fs *pflag.FlagSet, path string) (*policy.Config, error) {
	switch {
	case !fs.Changed("config"):
		return policy.DefaultConfig(), nil
	case path == "":
		return nil, errors.New("--config is empty: name the policy file, or leave the flag out")
	}
	c, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--config:\n%w", err)
	}
	return c, nil
}

// readPolicy reads a policy file.
func readPolicy(path string) (*policy.Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxPolicyFile))
	if err != nil {
		return nil, err
	}
	c, err := policy.ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	return c, checkNames(c)
}

// newPolicyCommand makes the commands that say what a policy file means. They ask nobody.
func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file, and explain what happens to a request",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(), newPolicyExplainCommand())
	return cmd
}

func newPolicyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a policy file, or which rules it has",
		Args:  wholeArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return errors.New("the name of the policy file is empty")
			}
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

// writeRules writes what holds for each rule of a file, with what it inherits.
func writeRules(w io.Writer, file string, c *policy.Config) error {
	table := &strings.Builder{}
	fmt.Fprintln(table, "RESOURCE\tCACHE\tREPRESENTATIONS\tHISTORY\tBYTES\tIDLE\tLIMIT AT 0\tCONSISTENT\tWATCHES\tSAME FOR ALL\tNEWEST AS ANY\tFROM")
	for _, named := range rulesInForce(c) {
		rule := named.Rule
		if line, ok := strings.CutPrefix(rule.Source, file+":"); ok {
			rule.Source = "line " + line
		}
		writeRule(table, named.name, rule)
	}
	return writeTable(w, table.String())
}

// namedRule is a rule, and what it is for.
type namedRule struct {
	name string
	policy.Rule
}

// rulesInForce are all rules of a policy: those of its file in its order, and what holds without
// one.
func rulesInForce(c *policy.Config) []namedRule {
	var rules []namedRule
	for _, t := range c.Targets() {
		rules = append(rules, namedRule{t.String(), c.Rule(t)})
	}
	rules = append(rules, namedRule{statusz.EverythingElse, c.Defaults()})
	for _, t := range []policy.Target{{Resource: "secrets"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}} {
		if rule := c.For(t.Group, "v1", t.Resource); rule.Source == policy.BuiltIn {
			rules = append(rules, namedRule{t.String(), rule})
		}
	}
	return rules
}

// writeTable aligns the cells of lines, which have tabs between them.
func writeTable(w io.Writer, lines string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, lines); err != nil {
		return err
	}
	return table.Flush()
}

func writeRule(w *strings.Builder, name string, r policy.Rule) {
	cells := []string{name, string(r.Cache), "-", "-", "-", "-", "-", "-", "-", "-", "-", r.Source}
	if r.Cache != policy.CacheNever {
		copy(cells[2:], []string{representationsOf(r), historyOf(r), bytesOf(r), idleOf(r), string(r.LimitAtZero), consistentOf(r), watchesOf(r), sameOf(r), newestAsAnyOf(r)})
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func representationsOf(r policy.Rule) string {
	if len(r.Representations) == len(media.All()) {
		return "all"
	}
	words := make([]string, len(r.Representations))
	for i, representation := range r.Representations {
		words[i] = string(representation)
	}
	return strings.Join(words, ",")
}

func historyOf(r policy.Rule) string {
	if r.HistoryWindow == 0 {
		return "--history-window"
	}
	return r.HistoryWindow.String()
}

func bytesOf(r policy.Rule) string {
	if r.MaxBytes == 0 {
		return "--cache-bytes"
	}
	return resource.NewQuantity(r.MaxBytes, resource.BinarySI).String()
}

func watchesOf(r policy.Rule) string {
	if r.Watches == nil {
		return "--watches"
	}
	return strconv.FormatBool(*r.Watches)
}

func consistentOf(r policy.Rule) string {
	return cmp.Or(string(r.ConsistentLists), "--consistent-lists")
}

func newestAsAnyOf(r policy.Rule) string {
	names := make([]string, len(r.NewestAsAny))
	for i, caller := range r.NewestAsAny {
		names[i] = caller.String()
	}
	return cmp.Or(strings.Join(names, ", "), "nobody")
}

func sameOf(r policy.Rule) string {
	if r.SameForEveryone {
		return "yes"
	}
	return "no"
}

func idleOf(r policy.Rule) string {
	switch {
	case r.Cache == policy.CacheEager:
		return "never"
	case r.IdleTimeout == nil:
		return "--idle-timeout"
	case *r.IdleTimeout == 0:
		return "never"
	}
	return r.IdleTimeout.String()
}
