package operators

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

const (
	// arrival is how long the spans of a request are waited for. What has not come by then is lost.
	arrival = 20 * time.Second
	// allArrivals is patience with all the requests of a test.
	allArrivals = 4 * time.Minute
	lookEvery   = 50 * time.Millisecond
)

// find returns the span of a service with such a name, if it has arrived.
func find(spans []span, service, name string) (span, bool) {
	i := slices.IndexFunc(spans, func(s span) bool { return s.service == service && s.GetName() == name })
	if i < 0 {
		return span{}, false
	}
	return spans[i], true
}

// askTraced sends a request as part of a trace, and returns that trace's ID.
func askTraced(t *testing.T, user, path string) (traceID string, status string) {
	t.Helper()
	client := ask.MustNew(t, traced.RESTConfig(cp.RESTConfig(user)), patience)
	defer client.HTTP.CloseIdleConnections()
	var id [24]byte
	_, _ = rand.Read(id[:])
	traceID = hex.EncodeToString(id[:16])
	a, err := client.With("Traceparent", "00-"+traceID+"-"+hex.EncodeToString(id[16:])+"-01").With("User-Agent", "traces-test").
		Do(t.Context(), http.MethodGet, path, nil)
	expect.NoError(t, err)
	return traceID, a.Source()
}

// ours returns the ID of the trace that listproxy began for a request, whose span has that name and is
// linked with the caller's trace.
func ours(t *testing.T, callers, name string) (id string, err error) {
	t.Helper()
	err = poll.Try(t.Context(), arrival, lookEvery, "a span that is linked with the caller's trace", func() error {
		found := collected.of(func(s span) bool { return s.service == "listproxy" && s.GetName() == name && s.linked(callers) })
		if len(found) == 0 {
			return errors.New("none has arrived")
		}
		id = found[0].trace()
		return nil
	})
	return id, err
}

// has tells whether spans of a service have arrived, each by its name.
func has(spans []span, service string, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, there := find(spans, service, name)
		return !there
	})
}

// await returns a trace when done says that all of it is there.
func await(t *testing.T, id string, done func([]span) bool) (trace []span, err error) {
	t.Helper()
	err = poll.Try(t.Context(), arrival, lookEvery, "a trace", func() error {
		trace = collected.of(func(s span) bool { return s.trace() == id })
		if !done(trace) {
			return fmt.Errorf("it has only %s", describe(trace))
		}
		return nil
	})
	for _, leak := range secrets.Suite.Search("a trace", fmt.Sprint(trace)) {
		t.Error(leak)
	}
	return trace, err
}

// untilWhole puts a request until one has arrived whole, each time under another trace. Spans may
// be lost on their way, of a request with which nothing is wrong: full queues drop them, and
// exports have a time-out.
func untilWhole(t *testing.T, look func() error) {
	t.Helper()
	expect.NoError(t, poll.Try(t.Context(), allArrivals, time.Second, "all spans of a request", look))
}

func describe(spans []span) string {
	var text strings.Builder
	for _, s := range spans {
		_, _ = fmt.Fprintf(&text, "%s %q %s below %s\n", s.service, s.GetName(), s.id(), s.parent())
	}
	return text.String()
}

// TestOneTree: a list that is forwarded for an administrator is one tree of both processes' spans.
func TestOneTree(t *testing.T) {
	t.Parallel()
	const name, theirs = "GET pods", "GET /api/v1/pods"
	var spans []span
	untilWhole(t, func() (err error) {
		id, status := askTraced(t, controlplane.Admin, "/api/v1/pods")
		if status != "listproxy; fwd=bypass; detail=most-recent" {
			t.Errorf("Cache-Status: %s", status)
		}
		if id, err = ours(t, id, name); err != nil {
			return err
		}
		spans, err = await(t, id, func(spans []span) bool {
			return has(spans, "listproxy", name, "forward") && has(spans, "apiserver", theirs)
		})
		return err
	})
	request, _ := find(spans, "listproxy", name)
	forward, _ := find(spans, "listproxy", "forward")
	upstream, _ := find(spans, "apiserver", theirs)
	if forward.parent() != request.id() || upstream.parent() != forward.id() {
		t.Errorf("it is no tree:\n%s", describe(spans))
	}
	for key, want := range map[string]string{
		"listproxy.decision": "forward", "listproxy.reason": "most-recent", "listproxy.semantics": "most-recent",
		"http.response.status_code": "200",
	} {
		if got := attribute(request.GetAttributes(), key); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}

// TestFromMemory: a list from memory has its steps, and the review that was asked for it.
func TestFromMemory(t *testing.T) {
	t.Parallel()
	const name, theirs = "GET pods", "GET /api/v1/namespaces/{namespace}/pods"
	const review = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	steps := []string{"review", "snapshot", "write"}
	var spans []span
	namespace, tries := "team-a", 0
	untilWhole(t, func() (err error) {
		var id, status string
		// A review that failed is not remembered.
		poll.Reviewed(t.Context(), patience, func() string {
			id, status = askTraced(t, controlplane.Admin, "/api/v1/namespaces/"+namespace+"/pods?resourceVersion=0")
			return status
		})
		if status != "listproxy; hit; detail=any" {
			t.Fatalf("Cache-Status: %s", status)
		}
		if id, err = ours(t, id, name); err != nil {
			return err
		}
		tries++
		namespace = fmt.Sprintf("again-%d", tries) // where nothing was reviewed yet
		spans, err = await(t, id, func(spans []span) bool {
			return has(spans, "listproxy", name, "POST") && has(spans, "listproxy", steps...) && has(spans, "apiserver", review)
		})
		return err
	})
	request, _ := find(spans, "listproxy", name)
	for _, step := range steps {
		if s, _ := find(spans, "listproxy", step); s.parent() != request.id() {
			t.Errorf("%s is not below the request:\n%s", step, describe(spans))
		}
	}
	post, _ := find(spans, "listproxy", "POST")
	reviewed, _ := find(spans, "apiserver", review)
	ours, _ := find(spans, "listproxy", "review")
	if post.parent() != ours.id() || reviewed.parent() != post.id() {
		t.Errorf("the upstream's review is not below ours:\n%s", describe(spans))
	}
	if _, there := find(spans, "apiserver", theirs); there {
		t.Error("kube-apiserver was asked for the list")
	}
}
