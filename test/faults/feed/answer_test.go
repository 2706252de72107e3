package feed

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

const (
	// patience ends a wait for what must come; no test passes because of it. After a long absence
	// of the API server listproxy's own streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// pollEvery is the time between two looks.
	pollEvery = 30 * time.Millisecond
)

// query of a list: "key=value" pairs.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		q.Set(key, value)
	}
	return q
}

// The ways to ask for a state.
func anyVersion() url.Values                  { return query("resourceVersion=0") }
func notOlderThan(revision string) url.Values { return query("resourceVersion=" + revision) }
func exactly(revision string) url.Values {
	return query("resourceVersion="+revision, "resourceVersionMatch=Exact")
}
func firstPage(revision string) url.Values { return query("resourceVersion="+revision, "limit=2") }

// verify holds an answer of listproxy against the API server's. Of one that is no list, and was not
// forwarded, the code is compared. An error that is not poll.Wrong is of an API server that gives
// no list to compare with just now.
func (c *cluster) verify(ctx context.Context, path string, q url.Values, a ask.Answer) error {
	switch {
	case a.Code == http.StatusOK && !q.Has("limit") && !q.Has("continue"):
		q = exactly(a.Meta().ResourceVersion)
	case a.Code != http.StatusOK && !a.FromMemory():
		return nil
	}
	want, err := c.directly(ctx, path+"?"+q.Encode())
	if err != nil {
		return err
	}
	if want.Code != a.Code || a.Code == http.StatusOK && plain(want.Body) != plain(a.Body) {
		return poll.Wrong(fmt.Sprintf("%s?%s: listproxy and the API server differ\n got: %s\nwant: %s", path, q.Encode(), a, want))
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(a.Header.Values(name)) != fmt.Sprint(want.Header.Values(name)) {
			return poll.Wrong(fmt.Sprintf("%s?%s: %s is %q, and %q directly", path, q.Encode(), name, a.Header.Values(name), want.Header.Values(name)))
		}
	}
	if n, m := len(a.Header.Values("Audit-Id")), len(want.Header.Values("Audit-Id")); n != m {
		return poll.Wrong(fmt.Sprintf("%s?%s: %d Audit-Id headers, and %d directly", path, q.Encode(), n, m))
	}
	return nil
}

// directly asks the API server for a list. That it cannot give one now is an error: it has too much
// to do, or is starting and has not all its paths yet.
func (c *cluster) directly(ctx context.Context, target string) (ask.Answer, error) {
	a, err := c.direct.Get(ctx, target)
	if err != nil {
		return a, err
	}
	if a.Code == http.StatusNotFound {
		ready, err := c.direct.Get(ctx, "/readyz")
		if err != nil {
			return a, err
		}
		if ready.Code != http.StatusOK {
			return a, fmt.Errorf("an API server that is not ready says %s", a)
		}
		if a, err = c.direct.Get(ctx, target); err != nil {
			return a, err
		}
	}
	if a.Code == http.StatusTooManyRequests || a.Code >= http.StatusInternalServerError {
		return a, fmt.Errorf("directly: %s", a)
	}
	return a, nil
}

// plain is a list as [oracle.Plain] has it.
func plain(body []byte) string { return string(oracle.Plain(body)) }
