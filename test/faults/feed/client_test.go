package feed

import (
	"net/url"
	"strings"
	"time"
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
