package operators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestLogThatCannotBeWritten takes the log's folder away and gives it back, and fills the disk:
// lists are forwarded meanwhile, are in the API server's log, and come from memory again
// afterwards.
func TestLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "logs")
	a := startAudited(t, filepath.Join(folder, "audit.log"))
	q := question{name: "pods", token: cp.Token(controlplane.Alice), agent: "test", path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"}
	lineOf(t, a.log, a.hit(t, q))

	for name, breaks := range map[string]struct{ begin, end func() error }{
		// In its place is a file, so that it cannot be made anew.
		"the folder is gone": {
			func() error { return replace(folder, func() error { return os.WriteFile(folder, nil, 0o600) }) },
			func() error { return replace(folder, func() error { return os.Mkdir(folder, 0o700) }) },
		},
		// What is written to this device fails as on a disk that is full.
		"the disk is full": {
			func() error { return replace(a.log, func() error { return os.Symlink("/dev/full", a.log) }) },
			func() error { return os.Remove(a.log) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := a.hit(t, q)
			lineOf(t, a.log, before)
			expect.NoError(t, breaks.begin())
			// The answer with which it is noticed is under way, and its event is kept.
			noticed := uuid.NewString()
			if source := q.ask(t, a.client, noticed).Source(); !strings.HasPrefix(source, "listproxy; hit; ") {
				t.Errorf("Cache-Status: %s", source)
			}
			a.until(t, q, "listproxy; fwd=bypass; detail=audit", func(id string) { lineOf(t, upstreamLog, id) })
			expect.NoError(t, breaks.end())
			after := a.hit(t, q)
			for _, id := range []string{noticed, after} {
				lineOf(t, a.log, id)
			}
			for _, id := range []string{noticed, after} {
				if lines := linesOf(t, upstreamLog, id); len(lines) > 0 {
					t.Errorf("in the API server's log, too: %s", lines)
				}
			}
		})
	}
	for _, line := range []string{"the audit log cannot be written: lists are forwarded until it can", "the audit log can be written again"} {
		if n := strings.Count(a.Log(), line); n != 2 {
			t.Errorf("%q is in the log %d times", line, n)
		}
	}
}

// replace puts something else where a file or a folder was.
func replace(path string, put func() error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return put()
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
