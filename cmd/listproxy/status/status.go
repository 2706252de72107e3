package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// The forms of listproxy status.
const (
	outputTable = "table"
	outputJSON  = "json"
)

const (
	// maxStatus bounds what is read of an answer.
	maxStatus = 16 << 20
	// maxRefusal bounds what is shown of an answer that is no status.
	maxRefusal = 300
	// statusTimeout is how long a listproxy may take to say how it is.
	statusTimeout = 10 * time.Second
)

// NewCommand makes the command that shows the status page in a terminal.
func NewCommand() *cobra.Command {
	var address, output, where string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a running listproxy, like its status page",
		Long: `Shows what the status page (/statusz on --admin-bind-address) of a running listproxy says.
The exit code is 0 if it is healthy, 1 if it is unhealthy or does not answer, and 2 if the
command line is wrong. In a cluster:

  kubectl -n listproxy port-forward deployment/listproxy 8081
  listproxy status`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) (err error) {
			if output != outputTable && output != outputJSON {
				return fmt.Errorf("--output %q: choose %s or %s", output, outputTable, outputJSON)
			}
			where, err = statusURL(address)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, status, err := fetchStatus(cmd.Context(), where)
			if err != nil {
				return err
			}
			if output == outputJSON {
				// As it came, so that members of later versions are there; control characters that
				// JSON allows are in strings only.
				_, err = io.WriteString(cmd.OutOrStdout(), strings.Map(cli.WithoutControl, string(raw)))
			} else {
				err = writeStatus(cmd.OutOrStdout(), status)
			}
			if err == nil && !status.Healthy {
				err = errors.New("it is not healthy: " + problems(status))
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&address, "address", "http://127.0.0.1:8081", "`URL` of the listproxy to ask, at its --admin-bind-address")
	fs.StringVarP(&output, "output", "o", outputTable, "`form`: table or json")
	cli.Complete(cmd, "address")
	cli.Complete(cmd, "output", outputTable, outputJSON)
	return cmd
}

// writeStatus writes a status for people.
func writeStatus(w io.Writer, status statusz.Status) error {
	if !wantsColour(w) {
		return status.WriteText(w)
	}
	var text strings.Builder
	if err := status.WriteText(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, inColour(text.String()))
	return err
}

// problems names the checks that are not OK.
func problems(s statusz.Status) string {
	var names []string
	for _, c := range s.Checks {
		if !c.OK {
			names = append(names, strings.Map(cli.WithoutControl, c.Name))
		}
	}
	return cmp.Or(strings.Join(names, ", "), "it does not say why; look at its log")
}

// statusURL is where the status is, below an address: a URL, or only host:port.
func statusURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return "", errors.New("--address is not a URL like http://127.0.0.1:8081: it has a host, and neither user nor query")
	}
	return u.JoinPath("statusz").String(), nil
}

// fetchStatus asks for the status, and returns it as it came, too.
func fetchStatus(ctx context.Context, where string) ([]byte, statusz.Status, error) {
	var status statusz.Status
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where+"?format=json", nil)
	if err != nil {
		return nil, status, err
	}
	client := http.Client{
		Transport: http.DefaultTransport,
		// A listproxy sends nobody elsewhere.
		CheckRedirect: kubehttp.NoRedirect,
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, status, unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return nil, status, unreachable(err)
	}
	if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusTooManyRequests {
		// As the admin port says it.
		return nil, status, fmt.Errorf("%s answers %s: %s", where, resp.Status, refusalText(raw))
	}
	if kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); resp.StatusCode != http.StatusOK || kind != "application/json" {
		return nil, status, fmt.Errorf("%s answers %s: is it the --admin-bind-address of a listproxy, of this version or a later one?", where,
			resp.Status)
	}
	if err := json.Unmarshal(raw, &status); err != nil || status.Version == "" {
		return nil, status, fmt.Errorf("%s does not answer as a listproxy does: give its --admin-bind-address as --address", where)
	}
	return raw, status, nil
}

// refusalText is the beginning of an answer, in one line.
func refusalText(raw []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(raw[:min(len(raw), maxRefusal)]), "")), " ")
	return strings.Map(cli.WithoutControl, text)
}

// unreachable says what to do where nobody answers.
func unreachable(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens there: start listproxy, or give its --admin-bind-address as --address (of a "+
			"pod: kubectl port-forward first)", err)
	case os.IsTimeout(err):
		return fmt.Errorf("%w: it does not answer in %v: look at its log", err, statusTimeout)
	}
	return fmt.Errorf("%w: give the --admin-bind-address of a running listproxy as --address", err)
}
