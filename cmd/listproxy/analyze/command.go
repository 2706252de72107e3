package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/policy"
)

// The values of --output.
const (
	outputText = "text"
	outputJSON = "json"
)

// NewCommand returns the command that analyzes logs. readPolicy reads the policy file at path, or returns the built-in
// policy if path is empty.
func NewCommand(readPolicy func(path string) (*policy.File, error)) *cobra.Command {
	var policyFile, output string
	var maxRows int
	var policyRead *policy.File // what PreRunE has read from policyFile
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
		PreRunE: func(_ *cobra.Command, files []string) (err error) {
			if len(files) == 0 {
				return errors.New("name the logs to read: listproxy analyze FILE..., and - for standard input")
			}
			if output != outputText && output != outputJSON {
				return fmt.Errorf("--output %q: choose %s or %s", output, outputText, outputJSON)
			}
			if maxRows < 0 {
				return fmt.Errorf("--top %d: give how many rows to show, or 0 for all", maxRows)
			}
			policyRead, err = readPolicy(policyFile)
			return err
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			a := newAnalyzer(policyRead)
			readErr := readFiles(a, files, cmd.InOrStdin())
			report := a.report()
			if report.Totals.Lists.Count+report.Totals.Watches.Count == 0 {
				return readErr // there is one for each file, since none has a list or watch
			}
			// The report has the logs that could be read, even if others have failed.
			writeErr := writeReport(cmd.OutOrStdout(), report, output, maxRows)
			return errors.Join(readErr, writeErr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&output, "output", "o", outputText, "`format`: text or json")
	fs.StringVar(&policyFile, "config", "", "policy `file` that listproxy would have; without it, the built-in policy")
	fs.IntVar(&maxRows, "top", 20, "how `many` rows of clients and resources the text has; 0 all")
	return cmd
}

// readFiles reads all files, even after one that cannot be read. It returns the errors of all files.
func readFiles(a *analyzer, files []string, stdin io.Reader) error {
	var errs []error
	for _, file := range files {
		if err := readFile(a, file, stdin); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(errs...)
}

// readFile reads one file, or stdin if file is "-". The error does not name the file.
func readFile(a *analyzer, file string, stdin io.Reader) error {
	if file == "-" {
		return a.readLog("standard input", stdin)
	}
	log, err := os.Open(file)
	if err != nil {
		return errors.Unwrap(err) // os.Open returns a *PathError: without the path
	}
	defer func() { _ = log.Close() }()
	return a.readLog(file, log)
}

func writeReport(w io.Writer, report Report, output string, maxRows int) error {
	if output == outputJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.writeText(w, maxRows)
}
