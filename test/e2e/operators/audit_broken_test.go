package operators

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// audited is a listproxy, a process of its own, with an audit log.
type audited struct {
	*harness.Proxy
	log    string
	client *ask.Client
}

// startAudited starts a listproxy whose audit log is at path.
func startAudited(t *testing.T, path string) *audited {
	t.Helper()
	running := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{
			"--audit-log-path", path, "--eager", "pods,configmaps",
			// Some are asked for at one revision, late in a test.
			"--history-window", "1h",
		},
	})
	client := ask.MustNew(t, running.RESTConfig(cp.RESTConfig(controlplane.Anonymous)), patience)
	t.Cleanup(client.HTTP.CloseIdleConnections)
	return &audited{Proxy: running, log: path, client: client}
}

// hit asks until the answer comes from memory, and returns the ID of that answer's event.
func (a *audited) hit(t *testing.T, q question) (id string) {
	t.Helper()
	a.until(t, q, "listproxy; hit; ", func(it string) { id = it })
	return id
}

// until asks until an answer's Cache-Status begins so, and tells the ID with which it was asked
// for.
func (a *audited) until(t *testing.T, q question, cacheStatus string, tell func(id string)) {
	t.Helper()
	poll.Until(t, patience, q.name+": "+cacheStatus, func() bool {
		id := uuid.NewString()
		if !strings.HasPrefix(q.ask(t, a.client, id).Source(), cacheStatus) {
			return false
		}
		tell(id)
		return true
	})
}

// TestFullDisk: what is written to this device fails as on a disk that is full. All lists are
// forwarded, and so are in the API server's log.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	expect.NoError(t, os.Symlink("/dev/full", path))
	a := startAudited(t, path)
	for range 2 {
		a.until(t, podsOfAlice(), forwardedUnaudited, func(id string) { lineOf(t, upstreamLog, id) })
	}
	wantOnce(t, a, "the audit log cannot be written: lists are forwarded until it can")
}

// TestLogThatNobodyReads: a pipe is full after some events. Lists are forwarded until it is read, and
// then come from memory again.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	expect.NoError(t, syscall.Mkfifo(path, 0o600))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // #nosec G304 -- the test's own
	expect.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	a := startAudited(t, path)
	q := podsOfAlice()
	first := a.hit(t, q)
	a.until(t, q, forwardedUnaudited, func(id string) { lineOf(t, upstreamLog, id) })
	wantOnce(t, a, "writing to the audit log takes too long: lists are forwarded until it is done")

	var read bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&read, pipe)
		done <- err
	}()
	last := a.hit(t, q)
	expect.NoError(t, pipe.SetReadDeadline(time.Now().Add(time.Second)))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	for _, id := range []string{first, last} {
		if strings.Count(read.String(), id) != 1 {
			t.Errorf("%s is not in the log once", id)
		}
		if lines := linesOf(t, upstreamLog, id); len(lines) > 0 {
			t.Errorf("in the API server's log, too: %s", lines)
		}
	}
}

// forwardedUnaudited begins the Cache-Status of a list that could not be audited.
const forwardedUnaudited = "listproxy; fwd=bypass; detail=audit"

func podsOfAlice() question {
	return question{name: "pods", token: cp.Token(controlplane.Alice), agent: "test", path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"}
}

func wantOnce(t *testing.T, a *audited, line string) {
	t.Helper()
	if n := strings.Count(a.Log(), line); n != 1 {
		t.Errorf("%q is in the log %d times", line, n)
	}
}

// TestPathThatCannotBeWritten: it does not start with a log that could never be written.
func TestPathThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	expect.NoError(t, os.WriteFile(file, nil, 0o600))
	path := filepath.Join(file, "audit.log")
	p, err := harness.LaunchProxy(t.Context(), harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--audit-log-path", path},
	})
	if err == nil {
		p.Kill()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "--audit-log-path="+path) {
		t.Errorf("the error does not name the flag: %v", err)
	}
}
