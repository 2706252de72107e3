package admin

import (
	"cmp"
	"slices"
	"time"
)

// Status is what an operator looks at in a minute: the status page, and its JSON. Names and meanings
// of members stay the same in later versions; members may be added. Requests are those that have
// ended since the process began, as in the metrics. Times are in seconds, sizes in bytes.
type Status struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Uptime  float64   `json:"uptimeSeconds"`
	// Healthy is true if all Checks are OK.
	Healthy  bool     `json:"healthy"`
	Checks   []Check  `json:"checks"`
	Upstream Upstream `json:"upstream"`
	// Lists and Watches are how requests for them were answered; a streaming list is a watch. Reasons
	// are why they were forwarded, the most frequent first.
	Lists   Answers  `json:"lists"`
	Watches Answers  `json:"watches"`
	Reasons []Reason `json:"reasons"`
	// Collections are what is kept, by name.
	Collections []Collection `json:"collections"`
	// Changes are the last ones that made listproxy drop what it had, the latest first.
	Changes []Change `json:"changes"`
	// Mismatches are the collections in which a self-check ever found a difference.
	Mismatches []Mismatch `json:"mismatches"`
	Memory     Memory     `json:"memory"`
}

// Upstream is how the API server is, as listproxy's own account finds it.
type Upstream struct {
	// Address is its scheme, host and port.
	Address string `json:"address"`
	// State is the state label of listproxy_upstream_ok, since Seconds.
	State   string  `json:"state"`
	Seconds float64 `json:"stateSeconds"`
	// Answered is how long ago it last answered; absent if it never did.
	Answered *float64 `json:"answeredSeconds,omitempty"`
	// Error is the reason why it is not ok, and Advice what to do; absent if it is.
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// Answers is how requests were answered: from memory, or by the API server. Share is that of those
// from memory, from 0 to 1; absent if there were none at all.
type Answers struct {
	Answered  int64    `json:"answered"`
	Forwarded int64    `json:"forwarded"`
	Share     *float64 `json:"share,omitempty"`
}

// Reason is a reason to forward, how many lists and watches were forwarded for it, and what it means.
type Reason struct {
	Reason  string `json:"reason"`
	Lists   int64  `json:"lists"`
	Watches int64  `json:"watches"`
	Meaning string `json:"meaning"`
}

// Collection is one resource in one representation.
type Collection struct {
	Resource       string `json:"resource"` // "deployments.apps"
	Version        string `json:"version"`
	Representation string `json:"representation"`
	// State is [StateLive], or the reason why lists of the newest state are forwarded.
	State   string `json:"state"`
	Objects int    `json:"objects"`
	// From and To are the revisions, both included, that can be asked for; 0 if there are none.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// History is how far back that is in time, and Window how far it is to be.
	History float64 `json:"historySeconds"`
	Window  float64 `json:"windowSeconds"`
	// Age is how old the newest state may be; absent if there was none.
	Age *float64 `json:"ageSeconds,omitempty"`
	// Idle is the time since a request last asked for it.
	Idle    float64 `json:"idleSeconds"`
	Watches int64   `json:"watches"` // that are open, answered from memory
	Bytes   int64   `json:"bytes"`
}

// StateLive is the state of a collection whose newest state can be given.
const StateLive = "live"

// Name returns which collection it is, as people do.
func (c Collection) Name() string { return c.Resource + "/" + c.Representation }

// Change is something on which what is kept depends: a definition, a route, the API servers.
type Change struct {
	// Of is what it was about: a resource, a group and version, or "all".
	Of    string `json:"of"`
	Cause string `json:"cause"` // as of listproxy_feed_restarts_total
	// What has changed about it, and which field manager wrote that; absent if it is not known.
	What string  `json:"what,omitempty"`
	Age  float64 `json:"ageSeconds"`
}

// Mismatch is what self-checks found wrong in a collection, which was dropped each time.
type Mismatch struct {
	Resource       string  `json:"resource"`
	Version        string  `json:"version"`
	Representation string  `json:"representation"`
	Times          int     `json:"times"`
	Age            float64 `json:"ageSeconds"` // since the last time
}

// Memory is what is used, and the bounds; 0 is no bound, or not known.
type Memory struct {
	Stored       int64 `json:"storedBytes"` // by all collections
	StoredLimit  int64 `json:"storedLimitBytes"`
	Compressed   int64 `json:"compressedBytes"` // kept of compressed lists
	Process      int64 `json:"processBytes"`    // resident
	ProcessLimit int64 `json:"processLimitBytes"`
}

// sort puts what has no order of its own into the order in which it is shown.
func (s *Status) sort() {
	slices.SortFunc(s.Collections, func(a, b Collection) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Representation, b.Representation))
	})
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int {
		return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Representation, b.Representation))
	})
	slices.SortFunc(s.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.Reason, b.Reason))
	})
}
