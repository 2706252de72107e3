package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// NewStatusCommand returns the command that shows the status page in a terminal.
func NewStatusCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running listproxy, like its status page",
		Long: `Shows what the status page (/statusz on --admin-bind-address) of a running listproxy says.
The exit code is 0 if it is healthy, and 1 otherwise. In a cluster:

  kubectl -n listproxy port-forward deployment/listproxy 8081
  listproxy status

For programs: curl 'http://127.0.0.1:8081/statusz?format=json'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			statusURL, err := parseAddress(address)
			if err != nil {
				return err
			}
			status, err := fetchStatus(cmd.Context(), statusURL)
			if err != nil {
				return fmt.Errorf("%w: give the --admin-bind-address of a running listproxy as --address "+
					"(of a pod: kubectl port-forward first)", err)
			}
			if err := writeStatus(cmd.OutOrStdout(), status); err != nil {
				return err
			}
			if !status.Healthy {
				return fmt.Errorf("the listproxy at %s is not healthy", address)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&address, "address", "http://127.0.0.1:8081",
		"`URL` of the listproxy to ask, at its --admin-bind-address")
	return cmd
}

// parseAddress returns the URL of the status page, as JSON, at the admin port that the value of --address names.
func parseAddress(address string) (statusURL string, _ error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", errors.New("--address is not a URL like http://127.0.0.1:8081")
	}
	if u.User != nil || u.RawQuery != "" {
		return "", errors.New("--address has a user or a query: give a URL like http://127.0.0.1:8081")
	}
	return u.JoinPath("statusz").String() + "?format=json", nil
}

const (
	statusTimeout   = 10 * time.Second
	maxStatusBytes  = 16 << 20
	maxExcerptBytes = 300 // of an answer that is not a status
)

// fetchStatus gets the status from statusURL, which parseAddress has returned.
func fetchStatus(ctx context.Context, statusURL string) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, statusURL, nil)
	if err != nil {
		return admin.Status{}, err
	}
	client := http.Client{CheckRedirect: kubehttp.NoRedirect} // listproxy does not redirect this URL, so another program would
	resp, err := client.Do(req)
	if err != nil {
		return admin.Status{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxStatusBytes))
	if err != nil {
		return admin.Status{}, err
	}
	var status admin.Status
	err = json.Unmarshal(raw, &status)
	isStatus := err == nil && status.Version != "" // the JSON of another program has no version of listproxy
	if resp.StatusCode != http.StatusOK || !isStatus {
		excerpt := string(raw[:min(len(raw), maxExcerptBytes)])
		return admin.Status{}, fmt.Errorf("%s answers %s", statusURL, printableLine(resp.Status+", and no status: "+excerpt))
	}
	return status, nil
}

// printableLine returns a text in one line, without invalid UTF-8, control characters and repeated spaces.
func printableLine(text string) string {
	text = strings.ToValidUTF8(text, "")
	text = strings.Map(dropControl, text)
	return strings.Join(strings.Fields(text), " ")
}

// writeStatus writes a status for people. It drops control characters: the status came over the network, and a terminal would
// obey its escape sequences.
func writeStatus(w io.Writer, status admin.Status) error {
	text := &strings.Builder{}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	writeHealth(table, status)
	writeOverview(table, status)
	writeCollections(table, status.Collections)
	writeReasons(table, status.Reasons)
	_ = table.Flush() // writing to a Builder never fails
	_, err := io.WriteString(w, strings.Map(dropControl, text.String()))
	return err
}

func writeHealth(table *tabwriter.Writer, status admin.Status) {
	health := "healthy"
	if !status.Healthy {
		health = "NOT HEALTHY"
	}
	fmt.Fprintf(table, "listproxy %s is %s, up for %s\n", status.Version, health, admin.FormatSeconds(status.Uptime))
	for _, check := range status.Checks {
		if !check.OK {
			fmt.Fprintln(table, check.String())
		}
	}
	for _, m := range status.Mismatches {
		fmt.Fprintf(table, "WARNING: something wrong may have been answered of %s %s %s: %d times, the last %s ago\n",
			m.Resource, m.Version, m.Representation, m.Times, admin.FormatSeconds(m.LastAge))
	}
}

func writeOverview(table *tabwriter.Writer, status admin.Status) {
	upstream := status.Upstream
	lastAnswer := "no answer yet"
	if upstream.AnswerAge != nil {
		lastAnswer = "last answer " + admin.FormatSeconds(*upstream.AnswerAge) + " ago"
	}
	fmt.Fprintf(table, "\nAPI server:\t%s for %s, %s (%s)\n",
		upstream.State, admin.FormatSeconds(upstream.StateAge), lastAnswer, upstream.Address)
	fmt.Fprintf(table, "lists:\t%s from memory (%d, and %d forwarded)\n",
		admin.FormatShare(status.Lists.Share), status.Lists.FromMemory, status.Lists.Forwarded)
	fmt.Fprintf(table, "watches:\t%s from memory (%d, and %d forwarded)\n",
		admin.FormatShare(status.Watches.Share), status.Watches.FromMemory, status.Watches.Forwarded)
	memory := status.Memory
	fmt.Fprintf(table, "memory:\t%s of %s kept, compressed lists %s, process %s of %s (0 B: no limit)\n",
		admin.FormatBytes(memory.Stored), admin.FormatBytes(memory.StoredLimit), admin.FormatBytes(memory.Compressed),
		admin.FormatBytes(memory.Process), admin.FormatBytes(memory.ProcessLimit))
}

func writeCollections(table *tabwriter.Writer, collections []admin.Collection) {
	fmt.Fprintln(table, "\nRESOURCE\tVERSION\tREPRESENTATION\tSTATE\tOBJECTS\tHOW FAR BACK\tREVISIONS\tAGE\tASKED FOR"+
		"\tWATCHES\tMEMORY")
	for _, c := range collections {
		age := "none"
		if c.Staleness != nil {
			age = admin.FormatSeconds(*c.Staleness)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s of %s\t%d-%d\t%s\t%s ago\t%d\t%s\n",
			c.Resource, c.Version, c.Representation, c.State, c.Objects, admin.FormatSeconds(c.HistoryLength), admin.FormatSeconds(c.HistoryWindow),
			c.OldestRevision, c.NewestRevision, age, admin.FormatSeconds(c.IdleTime), c.Watches, admin.FormatBytes(c.Bytes))
	}
}

func writeReasons(table *tabwriter.Writer, reasons []admin.Reason) {
	if len(reasons) == 0 {
		return
	}
	fmt.Fprintln(table, "\nFORWARDED\tLISTS\tWATCHES\tMEANING")
	for _, r := range reasons {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", r.Reason, r.Lists, r.Watches, r.Meaning)
	}
}

// dropControl is a mapping for [strings.Map] that drops control characters except line breaks.
func dropControl(r rune) rune {
	if r != '\n' && unicode.IsControl(r) {
		return -1
	}
	return r
}
