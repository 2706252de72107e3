package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
)

// The forms of the report.
const (
	outputText = "text"
	outputJSON = "json"
)

// NewCommand returns the command that analyzes logs. readPolicy reads the policy file that --config names.
func NewCommand(readPolicy func(fs *pflag.FlagSet, path string) (*policy.Config, error)) *cobra.Command {
	var config, output string
	var top int
	var rules *policy.Config
	cmd := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "Say what listproxy would answer from memory, by the requests in an audit log",
		Long: `Reads audit logs, and says for each client and resource how many lists and watches there were,
in which form, how many of them listproxy would answer from memory with which switches, and what
to change to get the rest.

It reads the audit log of kube-apiserver, and listproxy's own, as JSON: one event on a line, or
what exporters of managed clusters wrap around events (EKS, AKS). A file can be compressed with
gzip; - is standard input. It contacts no cluster, and listproxy need not be installed anywhere:

  listproxy analyze audit.log audit-*.log.gz
  listproxy analyze --output json audit.log | jq .totals

The exit code is 1 if a file could not be read to its end, or has no list and no watch.`,
		PreRunE: func(cmd *cobra.Command, files []string) (err error) {
			switch {
			case len(files) == 0:
				return errors.New("name the logs to read: listproxy analyze FILE..., and - for standard input")
			case output != outputText && output != outputJSON:
				return fmt.Errorf("--output %q: choose %s or %s", output, outputText, outputJSON)
			case top < 0:
				return fmt.Errorf("--top %d: give how many rows to show, or 0 for all", top)
			}
			rules, err = readPolicy(cmd.Flags(), config)
			return err
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			a := newAnalyzer(rules)
			problem := readLogs(a, files, cmd.InOrStdin())
			report := a.report()
			if report.Totals.Lists.Count+report.Totals.Watches.Count == 0 {
				return problem // there is nothing to report
			}
			if err := writeReport(cmd.OutOrStdout(), report, output, top); err != nil {
				return err
			}
			return problem
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&output, "output", "o", outputText, "`form`: text or json")
	fs.StringVar(&config, "config", "", "policy `file` that listproxy would have; without it, the built-in policy")
	fs.IntVar(&top, "top", 20, "how `many` rows of clients and resources the text has; 0 all")
	return cmd
}

// readLogs reads all files, even if one of them cannot be read. It returns the errors of all.
func readLogs(a *analyzer, files []string, stdin io.Reader) error {
	var problems []error
	for _, file := range files {
		if err := readLog(a, file, stdin); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(problems...)
}

func readLog(a *analyzer, file string, stdin io.Reader) error {
	if file == "-" {
		return a.readLog("standard input", stdin)
	}
	log, err := os.Open(file)
	if err != nil {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err // the caller names the file
		}
		return err
	}
	defer func() { _ = log.Close() }()
	return a.readLog(file, log)
}

func writeReport(w io.Writer, report Report, output string, top int) error {
	if output == outputJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.writeText(w, top)
}
