package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/cmd/listproxy/policyfile"
	"github.com/listproxy/listproxy/policy"
)

// The forms of the report.
const (
	outputText = "text"
	outputHTML = "html"
	outputJSON = "json"
)

// NewCommand makes the command that reads logs.
func NewCommand() *cobra.Command {
	var config, output string
	var top int
	var rules *policy.Config
	cmd := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "Say what listproxy would answer from memory, by the requests in a log",
		Long: `Reads logs of requests, and says for each client and resource how many lists and watches
there were, in which form, how many of them listproxy would answer from memory with which
switches, and what to change to get the rest.

It reads kube-apiserver's audit log (JSON lines) and listproxy's own logs: the audit log, and
the access log (--log-level=access). A file can be compressed with gzip; - is standard input.
It contacts no cluster, and listproxy need not be installed anywhere:

  listproxy analyze audit.log audit-*.log.gz
  listproxy analyze --output html audit.log > report.html
  kubectl -n listproxy logs deployment/listproxy | listproxy analyze -

The exit code is 1 if a file could not be read to its end, or has no line of such a log.`,
		PreRunE: func(cmd *cobra.Command, files []string) (err error) {
			switch {
			case len(files) == 0:
				return errors.New("name the logs to read: listproxy analyze FILE..., and - for standard input")
			case output != outputText && output != outputJSON && output != outputHTML:
				return fmt.Errorf("--output %q: choose %s, %s or %s", output, outputText, outputJSON, outputHTML)
			case top < 0:
				return fmt.Errorf("--top %d: give how many rows to show, or 0 for all", top)
			}
			rules, err = policyfile.ReadFlag(cmd.Flags(), config)
			return err
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			a := newAnalyzer(rules)
			problem := readLogs(a, files, cmd.InOrStdin(), cmd.ErrOrStderr())
			report := a.report()
			if problem != nil && len(report.Files) == 0 {
				return problem // there is nothing to report of
			}
			if err := writeReport(cmd.OutOrStdout(), report, output, top); err != nil {
				return err
			}
			if problem == nil && report.Totals.Lists.Count+report.Totals.Watches.Count == 0 {
				problem = errors.New("there is no list and no watch in it: is it an audit log of kube-apiserver (audit.k8s.io/v1, JSON lines, " +
					"with the stage ResponseComplete), or a log of listproxy with --log-level=access?")
			}
			return problem
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&output, "output", "o", outputText, "`form`: text, json or html (one file, with plots)")
	fs.StringVar(&config, "config", "", "policy `file` that listproxy would have; without it, the built-in policy")
	fs.IntVar(&top, "top", 20, "how `many` rows of clients and resources the text has; 0 all")
	cli.Complete(cmd, "output", outputText, outputJSON, outputHTML)
	return cmd
}

// readLogs reads all the files, also if one of them cannot be read, and returns what was wrong.
func readLogs(a *analyzer, files []string, stdin io.Reader, progress io.Writer) error {
	bar := newProgress(progress, totalSize(files))
	defer bar.clear()
	var problems []error
	for _, file := range files {
		if err := readLog(a, file, stdin, bar); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errors.Join(problems...)
}

func readLog(a *analyzer, file string, stdin io.Reader, bar *progress) error {
	if file == "-" {
		return a.readLog("standard input", bar.reader(stdin))
	}
	log, err := os.Open(file)
	if err != nil {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err // the caller names the file
		}
		return err
	}
	defer func() { _ = log.Close() }()
	return a.readLog(file, bar.reader(log))
}

// totalSize is how large the files are together; 0 if that is not known.
func totalSize(files []string) int64 {
	var total int64
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	return total
}

func writeReport(w io.Writer, report Report, output string, top int) error {
	switch output {
	case outputHTML:
		return report.writeHTML(w)
	case outputJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return report.writeText(w, top)
}
