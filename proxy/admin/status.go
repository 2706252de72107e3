package admin

import (
	"cmp"
	"slices"
	"time"
)

// Status is the content of the status page, and its JSON. Names and meanings of members stay the same in later
// versions; members may be added. Requests are counted when they end, since the process began. Times are in seconds,
// sizes in bytes.
type Status struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Uptime  float64   `json:"uptimeSeconds"`
	// Healthy reports whether all Checks are OK.
	Healthy  bool     `json:"healthy"`
	Checks   []Check  `json:"checks"`
	Upstream Upstream `json:"upstream"`
	// Lists and Watches count requests by who has answered them; a streaming list is a watch. Reasons count those that
	// were forwarded, with the most frequent reason first.
	Lists   Answers  `json:"lists"`
	Watches Answers  `json:"watches"`
	Reasons []Reason `json:"reasons"`
	// Collections has all collections, sorted by name.
	Collections []Collection `json:"collections"`
	// Changes has the last changes in the cluster for which collections were dropped, the latest first.
	Changes []Change `json:"changes"`
	// Mismatches has the collections in which a self-check has found a difference.
	Mismatches []Mismatch `json:"mismatches"`
	Memory     Memory     `json:"memory"`
}

// Upstream is the state of the API server for requests of listproxy's own account.
type Upstream struct {
	// Address is the scheme, host and port.
	Address string `json:"address"`
	// State is the state label of listproxy_upstream_ok, and Seconds the time since it changed.
	State   string  `json:"state"`
	Seconds float64 `json:"stateSeconds"`
	// Answered is the time since the last answer; absent if there was none.
	Answered *float64 `json:"answeredSeconds,omitempty"`
	// Error is the cause of a state that is not ok, and Advice what to do; absent if it is ok.
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// Answers counts answers from memory, and by the API server. Share is the share of those from memory, from 0 to 1;
// absent if there were no answers.
type Answers struct {
	Answered  int64    `json:"answered"`
	Forwarded int64    `json:"forwarded"`
	Share     *float64 `json:"share,omitempty"`
}

// Reason is a reason to forward, its meaning, and the number of lists and watches that were forwarded for it.
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
	// State is [StateLive], or the reason for which lists of the newest state are forwarded.
	State   string `json:"state"`
	Objects int    `json:"objects"`
	// From and To are the first and the last revision that can be asked for; 0 if there are none.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// History is the age of From, and Window the age up to which revisions are to be kept.
	History float64 `json:"historySeconds"`
	Window  float64 `json:"windowSeconds"`
	// Age is the greatest possible age of the newest state; absent if there was none.
	Age *float64 `json:"ageSeconds,omitempty"`
	// Idle is the time since a request last asked for it.
	Idle    float64 `json:"idleSeconds"`
	Watches int64   `json:"watches"` // open ones that are answered from memory
	Bytes   int64   `json:"bytes"`
}

// StateLive is the state of a collection that answers lists of the newest state.
const StateLive = "live"

// Name returns the collection's name for people.
func (c Collection) Name() string { return c.Resource + "/" + c.Representation }

// Change is a change in the cluster for which collections were dropped: of a definition, a route, or the API servers.
type Change struct {
	// Of is a resource, a group and version, or "all".
	Of    string `json:"of"`
	Cause string `json:"cause"` // as in listproxy_feed_restarts_total
	// What describes the change; absent if it is not known.
	What string  `json:"what,omitempty"`
	Age  float64 `json:"ageSeconds"`
}

// Mismatch counts the self-checks that have found a difference in a collection, and dropped it.
type Mismatch struct {
	Resource       string  `json:"resource"`
	Version        string  `json:"version"`
	Representation string  `json:"representation"`
	Times          int     `json:"times"`
	Age            float64 `json:"ageSeconds"` // of the last
}

// Memory has the memory in use and its bounds; 0 if there is no bound, or it is not known.
type Memory struct {
	Stored       int64 `json:"storedBytes"` // of all collections
	StoredLimit  int64 `json:"storedLimitBytes"`
	Compressed   int64 `json:"compressedBytes"` // of compressed lists
	Process      int64 `json:"processBytes"`    // resident
	ProcessLimit int64 `json:"processLimitBytes"`
}

// sort sorts the parts of s that have no order yet.
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
