package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience  = 30 * time.Second
	pollEvery = 20 * time.Millisecond

	// everything is a policy that writes one event for every request, without bodies.
	everything = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`
)

// What all tests share.
var (
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
	// upstreamLog is the audit log of the API server.
	upstreamLog string
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) error {
		dir, err := s.Dir()
		if err != nil {
			return err
		}
		policyFile := filepath.Join(dir, "policy.json")
		if err := os.WriteFile(policyFile, []byte(everything), 0o600); err != nil {
			return err
		}
		upstreamLog = filepath.Join(dir, "audit.log")
		cp, err = s.ControlPlane(controlplane.Options{
			APIServerArgs: []string{"--audit-log-path=" + upstreamLog, "--audit-policy-file=" + policyFile},
		})
		if err != nil {
			return err
		}
		admin, err = kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
		return err
	}})
}

// lineOf returns the line of an audit log that has an ID; there must be exactly one, now or soon: an
// event may be written after the answer has been read.
func lineOf(t *testing.T, path, id string) string {
	t.Helper()
	var found []string
	poll.Until(t, patience, "a line with ID "+id+" in "+path, func() bool {
		found = linesOf(t, path, id)
		return len(found) > 0
	})
	if len(found) > 1 {
		t.Fatalf("%d lines with ID %s", len(found), id)
	}
	return found[0]
}

func linesOf(t *testing.T, path, id string) []string {
	t.Helper()
	log, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var found []string
	for line := range bytes.Lines(log) {
		var event struct {
			AuditID string `json:"auditID"`
		}
		// The last line may be half written.
		if json.Unmarshal(line, &event) == nil && event.AuditID == id {
			found = append(found, string(line))
		}
	}
	return found
}

// question is a list that both are asked.
type question struct {
	name  string
	path  string
	token string
	agent string
	// accept is the Accept header, JSON if empty.
	accept string
}

// ask sends a question with an ID to the server at base and returns the body of the answer, which
// must be a list.
func (q question) ask(t *testing.T, client *http.Client, base, id string) []byte {
	t.Helper()
	body, _ := q.answer(t, client, base, id)
	return body
}

// answer is ask with the header of the answer.
func (q question) answer(t *testing.T, client *http.Client, base, id string) ([]byte, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+q.path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+q.token)
	r.Header.Set("Audit-Id", id)
	r.Header.Set("User-Agent", q.agent)
	if q.accept != "" {
		r.Header.Set("Accept", q.accept)
	} else {
		r.Header.Set("Accept", "application/json")
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", q.path, res.Status, body.String())
	}
	return body.Bytes(), res.Header
}
